// Functions of one float and conversions, the one place of them (docs/numerics.md): CUDA's own
// f32 functions, which are the same instructions on every GPU of a kind, and roundings.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "backend/cuda/device/views.h"

namespace kvasir::backend::cuda {

constexpr float kLog2E = 1.44269504f;

__device__ inline float sigmoid_of(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ inline float silu_of(float x) { return x / (1.0f + expf(-x)); }
__device__ inline float gelu_of(float x) { return (0.5f * x) * erfcf(x * -0.707106781f); }
__device__ inline float gelu_tanh_of(float x) {  // 0.5 x (1 + tanh y) = x σ(2 y)
  return x * sigmoid_of(1.59576912f * fmaf((0.044715f * x) * x, x, x));
}
__device__ inline float softplus_of(float x) {
  return (0.0f < x ? x : 0.0f) + log1pf(expf(-fabsf(x)));
}

// 2^x by the unit's instruction (2 ulp): a probability is rounded to bf16 or summed with others.
__device__ inline float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Nearest even; a NaN keeps its upper bits.
__device__ inline std::uint32_t bf16_bits(float x) {
  const std::uint32_t u = __float_as_uint(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (u >> 16) | 0x40u;
  return (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
}
__device__ inline float f32_of_bf16(std::uint32_t bits) { return __uint_as_float(bits << 16); }
__device__ inline float round_to_bf16(float x) { return f32_of_bf16(bf16_bits(x)); }

__device__ inline std::uint32_t f16_bits(float x) {
  const std::uint32_t u = __float_as_uint(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (u >> 16 & 0x8000u) | 0x7e00u;
  std::uint16_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
__device__ inline float f32_of_f16(std::uint32_t bits) {
  float x;
  const auto h = static_cast<std::uint16_t>(bits);
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
}

// Two values as bf16 in one word, the first in its low half.
__device__ inline std::uint32_t pack_bf16(float low, float high) {
  std::uint32_t out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}

__device__ inline float load_as(Type type, const std::byte* plane, std::size_t i) {
  if (type == Type::f32) return reinterpret_cast<const float*>(plane)[i];
  const std::uint32_t bits = reinterpret_cast<const std::uint16_t*>(plane)[i];
  return type == Type::f16 ? f32_of_f16(bits) : f32_of_bf16(bits);
}
__device__ inline void store_as(Type type, std::byte* plane, std::size_t i, float x) {
  if (type == Type::f32) {
    reinterpret_cast<float*>(plane)[i] = x;
  } else {
    reinterpret_cast<std::uint16_t*>(plane)[i] =
        static_cast<std::uint16_t>(type == Type::f16 ? f16_bits(x) : bf16_bits(x));
  }
}
// x as a plane of that type holds it.
__device__ inline float round_as(Type type, float x) {
  return type == Type::f32 ? x : type == Type::f16 ? f32_of_f16(f16_bits(x)) : round_to_bf16(x);
}

// The sum over a warp's lanes, in every lane the same bits: halves of 16, 8, 4, 2, 1.
__device__ inline float sum_of_warp(float x) {
  for (int half = 16; half > 0; half /= 2) x += __shfl_xor_sync(~0u, x, half);
  return x;
}
__device__ inline float max_of_warp(float x) {
  for (int half = 16; half > 0; half /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, half));
  return x;
}

}  // namespace kvasir::backend::cuda
