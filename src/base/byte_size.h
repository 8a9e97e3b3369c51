// Sizes in bytes as people write and read them: flags with a unit, texts with 3 digits
// (FIT-30…32). Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvasir {

inline constexpr std::uint64_t kGigabyte = 1'000'000'000;
inline constexpr std::uint64_t kGibibyte = std::uint64_t{1} << 30;

// "8", "0.5", "512MiB", "1.5 gb" in bytes; a number alone counts `unit` bytes. Suffixes: kB MB GB
// TB (powers of 1000), KiB MiB GiB TiB (of 1024), case-insensitive. flag: its name without dashes.
// Error: `--{flag} must be a size ≥ 0`.
Result<std::uint64_t> parse_size(std::string_view flag, std::string_view text, std::uint64_t unit);

// 3 significant digits and the decimal unit: 1.23 GB, 45.6 MB, 789 kB, 12 B.
std::string format_bytes(std::uint64_t size_bytes);

}  // namespace kvasir
