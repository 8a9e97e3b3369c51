// Which files of a repository are fetched: what the user's patterns say, else what this engine can
// use. Pure.
#pragma once

#include <string>
#include <vector>

#include "hub/detail/listing.h"

namespace kvasir::hub {

struct Patterns {
  std::vector<std::string> include, exclude;  // shell patterns; '*' also matches '/'
};

// Errors: nothing matches, several GGUF models and no pattern, only weights we cannot load.
Result<std::vector<RemoteFile>> select_files(const Listing& listing,
                                             const Patterns& patterns,
                                             const std::string& repo);

// "x-00002-of-00005.gguf" → "x"; other names without their ".gguf".
std::string gguf_model_name(std::string_view file);
bool is_vision_projector(std::string_view file);  // mmproj*.gguf: a companion, not a model

}  // namespace kvasir::hub
