// Spreads the bits of a 64-bit key over a hash (the finaliser of SplitMix64, Steele et al. 2014).
#pragma once

#include <cstdint>

namespace kvasir::text::tok {

constexpr std::uint64_t mix64(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

}  // namespace kvasir::text::tok
