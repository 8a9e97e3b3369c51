// Codes of encoded rows in shared memory as operands of mma.m16n8k16, made in registers: an element
// is bf16(decoded, in f32), as in attention_tiles.cuh, whose tiles the other kernels make.
#pragma once

#include "backend/cuda/device/kv_side.cuh"

namespace kvasir::backend::cuda {

// Codes kCount · index … of a row, the first in the lowest bits.
template <int kBits, int kCount>
__device__ std::uint32_t load_window(const std::byte* row, std::uint32_t index) {
  constexpr std::uint32_t kWidth = kBits * kCount;
  if constexpr (kWidth == 32) {
    return reinterpret_cast<const std::uint32_t*>(row)[index];
  } else if constexpr (kWidth == 16) {
    return reinterpret_cast<const std::uint16_t*>(row)[index];
  } else {
    constexpr std::uint32_t kStep = kWidth % 8 == 0 ? 8 : kWidth % 4 == 0 ? 4 : 2;
    constexpr std::uint32_t kBytes = (8 - kStep + kWidth + 7) / 8;
    const auto* const from = reinterpret_cast<const std::uint8_t*>(row) + index * kWidth / 8;
    std::uint32_t window = from[0];
#pragma unroll
    for (std::uint32_t i = 1; i < kBytes; ++i) window |= std::uint32_t{from[i]} << (8 * i);
    return window >> index * kWidth % 8;
  }
}

// Code i of a window as a float: bits of a number whose last place is 1, less that number.
template <int kBits, bool kSigned>
__device__ float float_of_code(std::uint32_t window, int i) {
  if constexpr (kBits == 8) {
    const std::uint32_t word = kSigned ? window ^ 0x80808080u : window;
    const std::uint32_t bits = __byte_perm(word, 0x4b000000u, 0x7440u + static_cast<unsigned>(i));
    return __uint_as_float(bits) - (kSigned ? 8388736.0f : 8388608.0f);
  }
  const int place = i * kBits;
  const std::uint32_t one = static_cast<std::uint32_t>(150 - place) << 23;
  return __uint_as_float((window & ((1u << kBits) - 1u) << place) | one) - __uint_as_float(one);
}

// Affine codes of 8 bits: the code in the bits of 2^15 + code, and the offset less scale · 2^15,
// where that is exact; it is unless the offset is a small part of the scale.
__device__ inline float shifted_offset(float scale, float offset) {
  return fmaf(-32768.0f, scale, offset);
}
__device__ inline bool is_exact_shift(float scale, float offset, float shifted) {
  return fmaf(32768.0f, scale, shifted) == offset;
}
__device__ inline float float_of_shifted(std::uint32_t window, int i) {
  return __uint_as_float(
      __byte_perm(window, 0x47000000u, 0x7404u + (static_cast<unsigned>(i) << 4)));
}

// kShifted: g.offset is shifted.
template <KvKind kKind, int kBits, bool kShifted>
__device__ float decoded(std::uint32_t window, int i, GroupScale g, const float* centroids) {
  if constexpr (kShifted) return fmaf(float_of_shifted(window, i), g.scale, g.offset);
  if constexpr (kKind == KvKind::affine)
    return fmaf(float_of_code<kBits, false>(window, i), g.scale, g.offset);
  if constexpr (kKind == KvKind::turbo_values)
    return centroids[window >> (i * kBits) & ((1u << kBits) - 1u)] * g.scale;
  return (float_of_code<kBits, kBits == 8>(window, i) + g.offset) * g.scale;
}

}  // namespace kvasir::backend::cuda
