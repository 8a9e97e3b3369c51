// Codes of packed weights as one thread's operands of mma.m16n8k16: w = bf16(fma(code, scale,
// bias)), the fused multiply-add in f32, both roundings to nearest even.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "backend/cuda/device/mma.cuh"
#include "backend/cuda/device/weights.h"

namespace kvasir::backend::cuda {

// What a quantized weight's codes are multiplied with: compile-time facts of a Weight.
template <Code kCodeOf, ScaleKind kScaleOf, bool kHasBiasOf>
struct Format {
  static constexpr Code kCode = kCodeOf;
  static constexpr ScaleKind kScale = kScaleOf;
  static constexpr bool kHasBias = kHasBiasOf;
  static constexpr bool kIsDense = kCode == Code::bf16;
  static constexpr bool kIsPacked = kCode == Code::nibble && kScale == ScaleKind::bf16;
  // Steps of 16 elements of K after which scales are read anew.
  static constexpr unsigned kScaleSteps = kScale == ScaleKind::f32 ? 1 : 2;
  static constexpr unsigned kRowBytes = (kScale == ScaleKind::f32 ? 4 : 2) * (kHasBias ? 2 : 1);
};

// Scale and bias of a thread's two rows, for one group.
struct RowScales {
  float scale[2], bias[2];
  std::uint32_t scale2[2], bias2[2];  // kIsPacked: the same twice in bf16
};

__device__ inline float half_bits(std::uint32_t bits, bool is_f16) {
  return is_f16 ? __half2float(__ushort_as_half(static_cast<unsigned short>(bits)))
                : __uint_as_float(bits << 16);
}

// A row's scale and bias in a group, as they lie.
template <class F>
using RawScale = std::conditional_t<F::kScale != ScaleKind::f32,
                                    std::uint32_t,
                                    std::conditional_t<F::kHasBias, float2, float>>;

template <class F>
__device__ inline RawScale<F> fetch_scale(const unsigned char* at) {
  if constexpr (F::kScale != ScaleKind::f32 && !F::kHasBias) {
    return *reinterpret_cast<const unsigned short*>(at);
  } else {
    return *reinterpret_cast<const RawScale<F>*>(at);
  }
}

// h: which of a thread's two rows.
template <class F>
__device__ inline void set_scale(RowScales& out, unsigned h, const RawScale<F>& raw) {
  if constexpr (F::kScale == ScaleKind::f32 && F::kHasBias) {
    out.scale[h] = raw.x;
    out.bias[h] = raw.y;
  } else if constexpr (F::kScale == ScaleKind::f32) {
    out.scale[h] = raw;
  } else if constexpr (!F::kHasBias) {
    out.scale[h] = half_bits(raw, true);
  } else {
    out.scale2[h] = __byte_perm(raw, 0, 0x1010);
    out.bias2[h] = __byte_perm(raw, 0, 0x3232);
    out.scale[h] = half_bits(raw & 0xffffu, F::kScale == ScaleKind::f16);
    out.bias[h] = half_bits(raw >> 16, F::kScale == ScaleKind::f16);
  }
}

// group: of one group of a tile, [16 rows].
template <class F>
__device__ inline void load_scales(RowScales& out, const unsigned char* group, unsigned lane) {
#pragma unroll
  for (unsigned h = 0; h < 2; ++h)
    set_scale<F>(out, h, fetch_scale<F>(group + (lane / 4 + 8 * h) * F::kRowBytes));
}

// The nibble at bit kBit as a float: placed in the mantissa of 2^(23 - kBit), which is taken off
// again together with the offset.
template <int kBit>
__device__ inline float nibble_at(std::uint32_t word, float offset) {
  constexpr std::uint32_t kOne = static_cast<std::uint32_t>(150 - kBit) << 23;
  const float shifted = __uint_as_float((word & (15u << kBit)) | kOne);
  return __fsub_rn(shifted, __fadd_rn(__uint_as_float(kOne), offset));
}

template <bool kHasBias>
__device__ inline std::uint32_t weigh(const RowScales& s, int row, float lo, float hi) {
  if constexpr (!kHasBias)
    return pack_bf16(__fmul_rn(lo, s.scale[row]), __fmul_rn(hi, s.scale[row]));
  return pack_bf16(__fmaf_rn(lo, s.scale[row], s.bias[row]),
                   __fmaf_rn(hi, s.scale[row], s.bias[row]));
}

// (word & mask) | bits in one instruction, which the compiler makes two of.
__device__ inline std::uint32_t and_or(std::uint32_t word, std::uint32_t mask, std::uint32_t bits) {
  std::uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(word), "r"(mask), "r"(bits));
  return out;
}

// The two elements at bits 0 and 16 of a word of nibbles, with a row's scale and bias in bf16.
__device__ inline std::uint32_t weigh_nibbles_bf16(std::uint32_t word,
                                                   std::uint32_t scale2,
                                                   std::uint32_t bias2) {
  std::uint32_t out;
  asm("{.reg .b32 c;\n"
      "fma.rn.bf16x2 c, %1, %2, %3;\n"
      "fma.rn.bf16x2 %0, c, %4, %5;}"
      : "=r"(out)
      : "r"(and_or(word, 0x000f000fu, 0x43004300u)),  // 128 + code
        "r"(0x3f803f80u), "r"(0xc300c300u), "r"(scale2), "r"(bias2));
  return out;
}

// One of a thread's two rows in a step's operands: a[kRow] and a[kRow + 2].
template <class F, int kRow>
__device__ inline void decode_nibble_row(std::uint32_t word,
                                         const RowScales& s,
                                         float offset,
                                         std::uint32_t* a) {
  if constexpr (F::kIsPacked) {
    a[kRow] = weigh_nibbles_bf16(word >> (4 * kRow), s.scale2[kRow], s.bias2[kRow]);
    a[kRow + 2] = weigh_nibbles_bf16(word >> (4 * kRow + 8), s.scale2[kRow], s.bias2[kRow]);
  } else if constexpr (kRow == 0) {
    a[0] = weigh<F::kHasBias>(s, 0, nibble_at<0>(word, offset), nibble_at<16>(word, offset));
    a[2] = weigh<F::kHasBias>(s, 0, nibble_at<8>(word, offset), nibble_at<12>(word >> 12, offset));
  } else {
    const std::uint32_t high = word >> 12;
    a[1] = weigh<F::kHasBias>(s, 1, nibble_at<4>(word, offset), nibble_at<8>(high, offset));
    a[3] = weigh<F::kHasBias>(s, 1, nibble_at<12>(word, offset), nibble_at<16>(high, offset));
  }
}
template <class F>
__device__ inline void decode_nibbles(std::uint32_t word,
                                      const RowScales& s,
                                      float offset,
                                      std::uint32_t* a) {
  decode_nibble_row<F, 0>(word, s, offset, a);
  decode_nibble_row<F, 1>(word, s, offset, a);
}

template <int kByte>
__device__ inline float byte_at(std::uint32_t word, float offset) {
  const float shifted = __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7440 + kByte));
  return __fsub_rn(shifted, __fadd_rn(8388608.0f, offset));
}

template <bool kHasBias, int kRow>
__device__ inline void decode_byte_row(
    std::uint32_t low, std::uint32_t high, const RowScales& s, float offset, std::uint32_t* a) {
  constexpr int kFirst = 2 * kRow;
  a[kRow] =
      weigh<kHasBias>(s, kRow, byte_at<kFirst>(low, offset), byte_at<kFirst + 1>(low, offset));
  a[kRow + 2] =
      weigh<kHasBias>(s, kRow, byte_at<kFirst>(high, offset), byte_at<kFirst + 1>(high, offset));
}
template <bool kHasBias>
__device__ inline void decode_bytes(
    std::uint32_t low, std::uint32_t high, const RowScales& s, float offset, std::uint32_t* a) {
  decode_byte_row<kHasBias, 0>(low, high, s, offset, a);
  decode_byte_row<kHasBias, 1>(low, high, s, offset, a);
}

}  // namespace kvasir::backend::cuda
