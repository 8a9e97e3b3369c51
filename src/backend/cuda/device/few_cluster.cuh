// Segments of a row's one new token, each by a block of a cluster: partial results stay in the
// blocks' shared memory, from where the blocks make an equal share of outputs each.
#pragma once

#include "backend/cuda/device/few_block.cuh"
#include "backend/cuda/device/near_blocks.cuh"

namespace kvasir::backend::cuda {

// Pairs' maxima and sums, and outputs, in the places of endings and of keys.
template <class S>
struct ClusterParts {
  const FewBlock<S>& block;

  __device__ std::uint32_t output(std::uint32_t pair) const {
    return block.at.k.codes + pair * S::kDim * 4;
  }
  // After the segment's keys have been used.
  __device__ void keep() const {
    auto* const ending = reinterpret_cast<float2*>(block.shared + block.at.ending);
    if (block.warp == 0) {
      const float sum = sum_of_quad(block.own[0].sum);
      if (block.lane % 4 == 0) ending[block.lane / 4] = {block.own[0].max, sum};
    }
#pragma unroll
    for (int e = 0; e < 2; ++e)
      block.store_row(reinterpret_cast<float*>(block.shared + output(2 * (block.lane % 4) + e)), 0,
                      e, block.out, [](float x) { return x; });
  }

  // Of n blocks, of which this is number blockIdx.x: segments in ascending order.
  template <int kMost>
  __device__ void join(std::uint32_t n) const {
    constexpr std::uint32_t kFours = S::kDim / 4;
    const AttentionParams& p = block.p;
    const std::uint32_t base = shared_address(block.shared), heads = p.n_heads / p.n_kv_heads;
    for (std::uint32_t i = threadIdx.x * n + blockIdx.x; i < heads * kFours; i += S::kThreads * n) {
      const std::uint32_t pair = i / kFours, d = i % kFours * 4;
      float2 ml[kMost];
      float4 part[kMost];
#pragma unroll
      for (std::uint32_t s = 0; s < kMost; ++s) {
        if (s >= n) continue;
        ml[s] = load_two_of_cluster(address_in(s, base + block.at.ending + pair * 8));
        part[s] = load_four_of_cluster(address_in(s, base + output(pair) + d * 4));
      }
      Softmax kept{minus_infinity(), 0.0f};
      float out[4] = {};
#pragma unroll
      for (std::uint32_t s = 0; s < kMost; ++s) {
        if (s >= n) continue;
        const Merge f = merge(kept, {ml[s].x, ml[s].y});
        out[0] = fmaf(out[0], f.keep, part[s].x * f.gain);
        out[1] = fmaf(out[1], f.keep, part[s].y * f.gain);
        out[2] = fmaf(out[2], f.keep, part[s].z * f.gain);
        out[3] = fmaf(out[3], f.keep, part[s].w * f.gain);
      }
      const std::uint32_t head = block.source.head * heads + pair;
      const float keep = p.sinks ? add_sink(kept, p.sinks[head]) : 1.0f;
      const std::uint32_t token = block.row.first_token, column = head * p.dim + d;
      float* const to = p.out.row(token) + column;
#pragma unroll
      for (int e = 0; e < 4; ++e) to[e] = out[e] = out[e] * keep / kept.sum;
      if (p.copy.data)
        *reinterpret_cast<uint2*>(static_cast<std::uint16_t*>(p.copy.data) +
                                  p.copy.place(token, column)) = {pack_bf16(out[0], out[1]),
                                                                  pack_bf16(out[2], out[3])};
    }
  }
};

}  // namespace kvasir::backend::cuda
