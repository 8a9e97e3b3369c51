// Where wide products leave what they come to. Of bf16 weights a thread's results go through one
// short loop: code that is run once a pass waits for each of its lines to be fetched.
#pragma once

#include "backend/cuda/device/activation.cuh"
#include "backend/cuda/device/wide_ring.cuh"

namespace kvasir::backend::cuda {

__device__ inline float biased(float sum, const float* bias, std::uint32_t output) {
  return bias ? __fadd_rn(sum, bias[output]) : sum;
}

// An output of a row.
__device__ inline void put_one(const WideArgs& p,
                               std::uint32_t row,
                               std::uint32_t column,
                               float value) {
  if (p.out) p.out[row * p.out_stride + column] = value;
  if (p.copy.data)
    static_cast<__nv_bfloat16*>(p.copy.data)[p.copy.place(row, column)] =
        __float2bfloat16_rn(value);
}
// An even one and the one behind it; n: how many of them are there.
__device__ inline void put_two(
    const WideArgs& p, std::uint32_t row, std::uint32_t column, float2 values, std::uint32_t n) {
  if (n == 0) return;
  if (n == 1) return put_one(p, row, column, values.x);
  if (p.out) {
    float* const to = p.out + row * p.out_stride + column;
    if (reinterpret_cast<std::uintptr_t>(to) % 8 == 0) {
      *reinterpret_cast<float2*>(to) = values;
    } else {
      to[0] = values.x, to[1] = values.y;
    }
  }
  if (p.copy.data)
    *reinterpret_cast<std::uint32_t*>(static_cast<std::uint16_t*>(p.copy.data) +
                                      p.copy.place(row, column)) = pack_bf16(values.x, values.y);
}

// What the next of kN pairs of gate and up comes to; pairs move up by one.
template <int kN>
__device__ inline float next_gated(const WideArgs& p,
                                   std::uint32_t output,
                                   float (&gate)[kN],
                                   float (&up)[kN]) {
  float out = 0.0f;
  if (output < p.parts[0].n_out)
    out = activate(p.activation, p.limit, biased(gate[0], p.parts[0].bias, output),
                   biased(up[0], p.parts[1].bias, output));
#pragma unroll
  for (int i = 0; i + 1 < kN; ++i) gate[i] = gate[i + 1], up[i] = up[i + 1];
  return out;
}

}  // namespace kvasir::backend::cuda
