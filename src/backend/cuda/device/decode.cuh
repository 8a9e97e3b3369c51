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
  // Nibbles multiplied in bf16: by scales of bf16, or of f16, which are sums of two of bf16.
  static constexpr bool kIsPacked = kCode == Code::nibble && kScale == ScaleKind::bf16;
  static constexpr bool kIsSplit = kCode == Code::nibble && kScale == ScaleKind::f16 && !kHasBias;
  // Bytes with scales times 2^kByteShift, and such whose offset is exact in the bias.
  static constexpr bool kIsShifted = kCode == Code::byte && kScale == ScaleKind::bf16;
  static constexpr bool kIsOffset = kCode == Code::byte && kScale == ScaleKind::f16 && !kHasBias;
  // Steps of 16 elements of K after which scales are read anew.
  static constexpr unsigned kScaleSteps = kScale == ScaleKind::f32 ? 1 : 2;
  static constexpr unsigned kRowBytes = (kScale == ScaleKind::f32 ? 4 : 2) * (kHasBias ? 2 : 1);
};

// A row's scale and bias in one group.
struct RowScale {
  float scale, bias;
  std::uint32_t pair;  // in bf16, or kIsSplit's upper and lower bits of a scale
};
// Those of a thread's two rows.
struct RowScales {
  RowScale row[2];
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

// 2^15 + a byte as a float is the byte in these bits.
constexpr std::uint32_t kByteOne = 0x47000000;
constexpr float kByteOffset = 32768.0f;

template <class F>
__device__ inline RowScale scale_of(const RawScale<F>& raw, float offset) {
  RowScale out{};
  if constexpr (F::kScale == ScaleKind::f32 && F::kHasBias) {
    out.scale = raw.x;
    out.bias = raw.y;
  } else if constexpr (F::kScale == ScaleKind::f32) {
    out.scale = raw;
  } else if constexpr (!F::kHasBias) {
    out.scale = half_bits(raw, true);
    if constexpr (F::kIsSplit) {
      const std::uint32_t bits = __float_as_uint(out.scale);
      const float low = __fsub_rn(out.scale, __uint_as_float(bits & 0xffff0000u));
      out.pair = __byte_perm(bits, __float_as_uint(low), 0x7632);
    }
    if constexpr (F::kIsOffset) out.bias = __fmul_rn(-kByteOffset - offset, out.scale);
  } else if constexpr (F::kIsPacked) {
    out.pair = raw;
  } else {
    out.scale = half_bits(raw & 0xffffu, F::kScale == ScaleKind::f16);
    out.bias = half_bits(raw >> 16, F::kScale == ScaleKind::f16);
  }
  return out;
}

// group: of one group of a tile, [16 rows].
template <class F>
__device__ inline void load_scales(RowScales& out,
                                   const unsigned char* group,
                                   unsigned lane,
                                   float offset) {
#pragma unroll
  for (unsigned h = 0; h < 2; ++h)
    out.row[h] = scale_of<F>(fetch_scale<F>(group + (lane / 4 + 8 * h) * F::kRowBytes), offset);
}

// (word & mask) | bits in one instruction, which the compiler makes two of.
__device__ inline std::uint32_t and_or(std::uint32_t word, std::uint32_t mask, std::uint32_t bits) {
  std::uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(word), "r"(mask), "r"(bits));
  return out;
}

// The nibble at bit kBit as a float: placed in the mantissa of 2^(23 - kBit), which is taken off
// again together with the offset.
template <int kBit>
__device__ inline float nibble_at(std::uint32_t word, float offset) {
  constexpr std::uint32_t kOne = static_cast<std::uint32_t>(150 - kBit) << 23;
  const float shifted = __uint_as_float(and_or(word, 15u << kBit, kOne));
  return __fsub_rn(shifted, __fadd_rn(__uint_as_float(kOne), offset));
}

template <bool kHasBias>
__device__ inline std::uint32_t weigh(const RowScale& s, float lo, float hi) {
  if constexpr (!kHasBias) return pack_bf16(__fmul_rn(lo, s.scale), __fmul_rn(hi, s.scale));
  return pack_bf16(__fmaf_rn(lo, s.scale, s.bias), __fmaf_rn(hi, s.scale, s.bias));
}

// The two elements at bits 4 and 20: as bf16 these bits are code * 2^-kNibbleShift, which the scale
// takes back.
__device__ inline std::uint32_t weigh_packed(std::uint32_t word, const RowScale& s) {
  std::uint32_t out;
  asm("{.reg .b16 scale, bias; .reg .b32 scales, biases;\n"
      "mov.b32 {scale, bias}, %2;\n"
      "mov.b32 scales, {scale, scale};\n"
      "mov.b32 biases, {bias, bias};\n"
      "fma.rn.bf16x2 %0, %1, scales, biases;}"
      : "=r"(out)
      : "r"(word & 0x00f000f0u), "r"(s.pair));
  return out;
}

// The two elements at bits 0 and 16. Both products are exact: of 4 bits and 8, of 4 bits and 3.
__device__ inline std::uint32_t weigh_split(std::uint32_t word, const RowScale& s, float offset) {
  const std::uint32_t shifted = and_or(word, 0x000f000fu, 0x43004300u);  // 128 + code
  std::uint32_t out;
  asm("{.reg .b16 upper, lower; .reg .b32 uppers, lowers, code, rest;\n"
      "mov.b32 {upper, lower}, %2;\n"
      "mov.b32 uppers, {upper, upper};\n"
      "mov.b32 lowers, {lower, lower};\n"
      "fma.rn.bf16x2 code, %1, %3, %4;\n"
      "fma.rn.bf16x2 rest, code, lowers, %5;\n"
      "fma.rn.bf16x2 %0, code, uppers, rest;}"
      : "=r"(out)
      : "r"(shifted), "r"(s.pair), "r"(0x3f803f80u),
        "r"(pack_bf16(-128.0f - offset, -128.0f - offset)), "r"(0x80008000u));
  return out;
}

// Two elements of a row of a tile's half `half`: at bits 4 half and 16 + 4 half.
template <class F>
__device__ inline std::uint32_t decode_nibble_pair(std::uint32_t word,
                                                   unsigned half,
                                                   const RowScale& s,
                                                   float offset) {
  if constexpr (F::kIsPacked) return weigh_packed(word * (half == 0 ? 16u : 1u), s);
  const std::uint32_t own = word >> (4 * half);
  if constexpr (F::kIsSplit) return weigh_split(own, s, offset);
  return weigh<F::kHasBias>(s, nibble_at<0>(own, offset), nibble_at<16>(own, offset));
}

// A row in a step's operands: its first two elements and its last two.
template <class F>
__device__ inline void decode_nibble_row(std::uint32_t word,
                                         unsigned half,
                                         const RowScale& s,
                                         float offset,
                                         std::uint32_t& first,
                                         std::uint32_t& last) {
  first = decode_nibble_pair<F>(word, half, s, offset);
  if constexpr (F::kIsPacked) {
    last = weigh_packed(word >> (4 + 4 * half), s);
  } else {
    last = decode_nibble_pair<F>(word >> 8, half, s, offset);
  }
}
template <class F>
__device__ inline void decode_nibbles(std::uint32_t word,
                                      const RowScales& s,
                                      float offset,
                                      std::uint32_t* a) {
  decode_nibble_row<F>(word, 0, s.row[0], offset, a[0], a[2]);
  decode_nibble_row<F>(word, 1, s.row[1], offset, a[1], a[3]);
}

// A byte as what its row's scale and bias are for: of a float alone in bits 16 to 23, which are
// multiples of 2^-kByteShift; with what kIsOffset's bias takes off; or the code itself.
template <class F>
__device__ inline float byte_at(std::uint32_t word, unsigned byte, float offset) {
  if constexpr (F::kIsShifted) return __uint_as_float(__byte_perm(word, 0, 0x4044u + (byte << 8)));
  if constexpr (F::kIsOffset)
    return __uint_as_float(__byte_perm(word, kByteOne, 0x7404u + (byte << 4)));
  const float shifted = __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7440u + byte));
  return __fsub_rn(shifted, __fadd_rn(8388608.0f, offset));
}

// Two elements of a row of a tile's half `half`: bytes 2 half and 2 half + 1.
template <class F>
__device__ inline std::uint32_t decode_byte_pair(std::uint32_t word,
                                                 unsigned half,
                                                 const RowScale& s,
                                                 float offset) {
  return weigh < F::kHasBias || F::kIsOffset > (s, byte_at<F>(word, 2 * half, offset),
                                                byte_at<F>(word, 2 * half + 1, offset));
}

template <class F>
__device__ inline void decode_byte_row(uint2 both,
                                       unsigned half,
                                       const RowScale& s,
                                       float offset,
                                       std::uint32_t& first,
                                       std::uint32_t& last) {
  first = decode_byte_pair<F>(both.x, half, s, offset);
  last = decode_byte_pair<F>(both.y, half, s, offset);
}
template <class F>
__device__ inline void decode_bytes(uint2 both,
                                    const RowScales& s,
                                    float offset,
                                    std::uint32_t* a) {
  decode_byte_row<F>(both, 0, s.row[0], offset, a[0], a[2]);
  decode_byte_row<F>(both, 1, s.row[1], offset, a[1], a[3]);
}

}  // namespace kvasir::backend::cuda
