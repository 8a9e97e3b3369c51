// The grids of the IQ types. A point is 8 coordinates of 2 bits or 4 of 4 bits, from the lowest up;
// a coordinate is the index of a magnitude (IQ2, IQ3) or of -1, 0, 1 (IQ1). Magnitudes of IQ2 and
// IQ3 get their signs from the block.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "codec/detail/block_bytes.h"

namespace kvasir::codec {

extern const std::array<std::uint16_t, 256> kIq2XxsGrid;
extern const std::array<std::uint16_t, 512> kIq2XsGrid;
extern const std::array<std::uint16_t, 1024> kIq2SGrid;
extern const std::array<std::uint16_t, 256> kIq3XxsGrid;
extern const std::array<std::uint16_t, 512> kIq3SGrid;
extern const std::array<std::uint16_t, 2048> kIq1Grid;

inline constexpr std::array<std::int16_t, 4> kIq2Magnitudes{8, 25, 43, 0};  // index 3: in no point
inline constexpr std::array<std::int16_t, 8> kIq3XxsMagnitudes{4, 12, 20, 28, 36, 44, 52, 62};

// Signs of eight elements (bit set: negative) from seven stored bits: their number is even.
inline unsigned even_signs(unsigned seven_bits) noexcept {
  return seven_bits | (static_cast<unsigned>(std::popcount(seven_bits)) & 1u) << 7;
}

// 8 elements of an IQ2 point.
inline void put_iq2_point(std::uint16_t point, unsigned signs, std::int16_t* codes) noexcept {
  for (unsigned k = 0; k < 8; ++k) {
    const std::int16_t magnitude = kIq2Magnitudes[(point >> (2 * k)) & 3u];
    codes[k] = static_cast<std::int16_t>(signs >> k & 1u ? -magnitude : magnitude);
  }
}

// -1, 0 or 1: element k of 8 of an IQ1 point.
inline int iq1_trit(std::uint16_t point, unsigned k) noexcept {
  return static_cast<int>((point >> (2 * k)) & 3u) - 1;
}

}  // namespace kvasir::codec
