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
constexpr std::uint64_t rounded_up(std::uint64_t n, std::uint64_t unit) noexcept {
  return unit == 0 ? n : times(n / unit + (n % unit != 0 ? 1 : 0), unit);
}

}  // namespace kvasir::fit
