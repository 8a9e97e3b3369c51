// Reading refs/ of a repository in the hub cache.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace kvasir::hub {

struct Ref {
  std::string name, commit;  // "refs/pr/1" keeps its slashes
};

std::vector<Ref> all_refs(const std::filesystem::path& repo_path);  // sorted by name
std::vector<std::string> refs_of(const std::filesystem::path& repo_path, const std::string& commit);

}  // namespace kvasir::hub
