// Looking for models in folders: names and sizes only, nothing is opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace kvasir::hub {

struct Candidate {
  std::filesystem::path path;  // a folder with config.json and weights, or a .gguf file
  std::string fingerprint;     // changes when one of its files does
  std::string reason;          // not empty: no model, and why
};

// Every snapshot of a hub cache, or everything below another folder (depth and number of entries
// bounded, links to folders not followed), or one model itself. Sorted by path.
std::vector<Candidate> find_candidates(const std::filesystem::path& root);

}  // namespace kvasir::hub
