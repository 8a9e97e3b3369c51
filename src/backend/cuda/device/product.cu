#include "backend/cuda/device/chain.cuh"
#include "backend/cuda/device/product.h"
#include "backend/cuda/device/product_kernel.cuh"

namespace kvasir::backend::cuda {
namespace {

// f32 weights, in f64: lane l adds k = 4·l + j + 128·i, i then j ascending, then the lanes are
// added in halves (16, 8, 4, 2, 1); one rounding to f32 at the end.
template <bool kIsGrouped>
__global__ void __launch_bounds__(128) product_f32_kernel(const __grid_constant__ ProductArgs p) {
  begin_early();
  const Part part = part_of_block<kIsGrouped, kFewRows>(p);
  const unsigned lane = threadIdx.x % 32;
  const std::uint32_t output = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (output >= part.w.n_out || part.n_rows == 0) return;
  const auto* w = static_cast<const float*>(part.w.data) + std::size_t{output} * part.w.k;
  const auto* x = static_cast<const float*>(p.x);
  double sums[kFewRows] = {};
  for (std::uint32_t k = 4 * lane; k < part.w.n_in; k += 128) {
    const float4 four = *reinterpret_cast<const float4*>(w + k);
    const float weights[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (std::uint32_t t = 0; t < kFewRows; ++t) {
      if (t >= part.n_rows) break;
      const float* row = x + x_row<kIsGrouped>(p, part.first + t) * p.x_stride + part.x_column + k;
#pragma unroll
      for (std::uint32_t j = 0; j < 4; ++j)
        sums[t] = fma(static_cast<double>(weights[j]),
                      static_cast<double>(k + j < part.w.n_in ? row[j] : 0.0f), sums[t]);
    }
  }
#pragma unroll
  for (std::uint32_t t = 0; t < kFewRows; ++t) {
    if (t >= part.n_rows) break;
    for (int half = 16; half > 0; half /= 2) sums[t] += __shfl_xor_sync(0xffffffffu, sums[t], half);
    const auto sum = static_cast<float>(sums[t]);
    if (lane == 0)
      p.out[(part.first + t) * p.out_stride + part.out_column + output] =
          part.bias ? __fadd_rn(sum, part.bias[output]) : sum;
  }
}

}  // namespace

void launch_product(Queue& queue, const ProductArgs& args) {
  switch (args.weight.code) {
    case Code::bf16:
      return launch_dense(queue, args);
    case Code::nibble:
      return launch_nibbles(queue, args);
    case Code::byte:
      return launch_bytes(queue, args);
    case Code::f32:
      return launch_product_f32(queue, args);
  }
}

void launch_product_f32(Queue& queue, const ProductArgs& args) {
  constexpr unsigned kWarps = 4;
  const dim3 grid = grid_of(args, (args.weight.n_out + kWarps - 1) / kWarps, kFewRows);
  args.grouped.weights ? queue.launch_early(&product_f32_kernel<true>, grid, 32 * kWarps, 0, args)
                       : queue.launch_early(&product_f32_kernel<false>, grid, 32 * kWarps, 0, args);
}

}  // namespace kvasir::backend::cuda
