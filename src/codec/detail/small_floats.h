// Floats of 4 and 8 bits (OCP MX): E2M1 and E4M3 elements, E8M0 scales.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace kvasir::codec {

// E2M1 by its bits, doubled to integers.
inline constexpr std::array<std::int8_t, 16> kTwiceE2M1{0, 1,  2,  3,  4,  6,  8,  12,
                                                        0, -1, -2, -3, -4, -6, -8, -12};

// Half of the E8M0 scale 2^(x - 127), which is what doubled elements need; 255 is NaN.
inline float half_of_e8m0(std::byte scale) noexcept {
  const auto x = std::to_integer<std::uint32_t>(scale);
  if (x == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(x < 2 ? 0x00200000u << x : (x - 1) << 23);
}

// E4M3 without infinities: 1 sign, 4 exponent (bias 7), 3 mantissa bits; all of the rest set is
// NaN.
inline float e4m3_to_f32(std::byte value) noexcept {
  const auto x = std::to_integer<std::uint32_t>(value);
  const std::uint32_t magnitude = x & 0x7fu, sign = (x & 0x80u) << 24;
  if (magnitude == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  const std::uint32_t bits =
      magnitude < 8 ? std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-9f)
                    : (magnitude << 20) + (120u << 23);
  return std::bit_cast<float>(bits | sign);
}

}  // namespace kvasir::codec
