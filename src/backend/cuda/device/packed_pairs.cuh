// Affine codes of 4 or 8 bits with scales and offsets of bf16, made elements in pairs of bf16: a
// code in the lowest bits of a bf16 number is code · 2^-133 (the first binade continues the
// denormals), so one fused multiply-add of a pair gives bf16(code · scale + offset). That has one
// rounding where an element's definition has two, of f32 first: the same element where f32 holds
// the sum exactly, which is tested of each scale and offset. To keep scale · 2^133 in range all
// elements are taken times 2^-8, and what they are multiplied by times 2^8: the same products.
#pragma once

#include <cstdint>

namespace kvasir::backend::cuda {

// Powers of two, twice each.
constexpr std::uint32_t kPackedUp = 0x43804380u, kPackedDown = 0x3b803b80u;  // 2^8, 2^-8
constexpr std::uint32_t kPackedOne = 0x3f803f80u;
constexpr std::uint32_t kPackedScale = 0x7e007e00u;  // 2^125: 2^133 · 2^-8
constexpr std::uint32_t kPackedFour = 0x3d803d80u;   // 2^-4: for codes in bits 4 to 7

// Two numbers times two, each plus one of two.
__device__ inline std::uint32_t fused_pair(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t out;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
  return out;
}
__device__ inline std::uint32_t times(std::uint32_t a, std::uint32_t b) {
  return fused_pair(a, b, 0x80008000u);
}

// Whether f32 holds code · scale + offset exactly for all codes, and bf16 scale · 2^125 and
// everything times 2^-8: exponents of the scale from -118 to 2, of the offset at most 8 below and
// 15 above.
__device__ inline bool packs_exactly(std::uint32_t scale, std::uint32_t offset) {
  const std::uint32_t s = scale >> 7 & 0xffu, o = offset >> 7 & 0xffu;
  const bool is_small = s - 9 <= 120, is_zero = (offset & 0x7fffu) == 0;
  return is_zero ? is_small || (scale & 0x7fffu) == 0 : is_small && o >= 9 && o + 8 - s <= 23;
}
__device__ inline bool pair_packs_exactly(std::uint32_t scales, std::uint32_t offsets) {
  return packs_exactly(scales & 0xffffu, offsets & 0xffffu) &&
         packs_exactly(scales >> 16, offsets >> 16);
}

}  // namespace kvasir::backend::cuda
