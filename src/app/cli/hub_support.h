// What get, scan, ls and gc share: where models lie (flags and environment), sizes for people.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "hub/options.h"

namespace kvasir::app {

struct HubFlags {
  std::string cache, registry;  // "": from the environment
};

void add_hub_flags(CLI::App& verb, HubFlags& flags);

// Flags, else HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME; HF_ENDPOINT; HF_TOKEN, HF_TOKEN_PATH (the file
// that `huggingface-cli login` writes); SSL_CERT_FILE and its relatives. Errors: no home folder.
Result<hub::HubOptions> hub_options(const HubFlags& flags = {});
bool is_offline();  // HF_HUB_OFFLINE

std::string size_text(std::uint64_t n_bytes);  // "1.2 GB", decimal as the hub shows it
std::string count_text(std::uint64_t n);       // "135 M"

// Columns padded to their widest cell; the first row is the heading.
std::string table_text(const std::vector<std::vector<std::string>>& rows);

}  // namespace kvasir::app
