// Scalar conversions between f32 and the 16-bit floats, round half to even. The truth every backend
// is tested against.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace kvasir {

struct BFloat16 {
  std::uint16_t bits = 0;
};
struct Float16 {
  std::uint16_t bits = 0;
};

constexpr float to_f32(BFloat16 x) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

// Nearest even; NaN stays a (quiet) NaN; overflow gives infinity.
constexpr BFloat16 to_bf16(float x) noexcept {
  const auto u = std::bit_cast<std::uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

constexpr float to_f32(Float16 h) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(h.bits & 0x8000u) << 16;
  const std::uint32_t exponent = (h.bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = h.bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

constexpr Float16 to_f16(float x) noexcept {
  const auto u = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>((u >> 16) & 0x8000u);
  const std::uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7e00u)};
  if (magnitude >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};  // ≥ 65520 → ∞
  if (magnitude <
      0x38800000u) {  // subnormal in f16: adding 0.5 aligns the mantissa, the FPU rounds
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return {
        static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(aligned) - 0x3f000000u))};
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return {static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}

constexpr float round_to_bf16(float x) noexcept { return to_f32(to_bf16(x)); }

}  // namespace kvasir
