// Sums and products of byte counts that stop at the largest number instead of wrapping: a count
// that large fits nowhere, and every comparison with a budget stays true.
#pragma once

#include <cstdint>
#include <limits>

namespace kvasir::fit {

inline constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

constexpr std::uint64_t plus(std::uint64_t a, std::uint64_t b) noexcept {
  return a > kMost - b ? kMost : a + b;
}
constexpr std::uint64_t times(std::uint64_t a, std::uint64_t b) noexcept {
  return a != 0 && b > kMost / a ? kMost : a * b;
}
constexpr std::uint64_t minus(std::uint64_t a, std::uint64_t b) noexcept {
  return a > b ? a - b : 0;
}

}  // namespace kvasir::fit
