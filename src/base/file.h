// Reads whole files, transparently decompressing `.xz` (liblzma), with a bound on the result.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"

namespace kvasir {

// The file's bytes; decompressed when the name ends in ".xz". More than max_bytes (after
// decompression) is an error.
Result<std::string> read_file(const std::filesystem::path& path, std::uint64_t max_bytes);

}  // namespace kvasir
