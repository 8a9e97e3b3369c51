// Partial results of a query's segments to its output: by a kernel of their own, or by the block
// that wrote the last of them. Which it is changes no bit.
#pragma once

#include "backend/cuda/device/attention.cuh"

namespace kvasir::backend::cuda {

// Factors of segments [0, n) of a chunk by one warp, each lane's in ascending order: a maximum is
// exact in any order, so only the sum is a chain.
__device__ inline void find_factors(const float2* parts,
                                    std::uint32_t n,
                                    Softmax& kept,
                                    Merge* factors) {
  const std::uint32_t lane = threadIdx.x % 32;
  for (std::uint32_t begin = 0; begin < n; begin += 32) {
    const std::uint32_t s = begin + lane;
    const float2 part = s < n ? __ldcg(parts + s) : float2{minus_infinity(), 0.0f};
    float upto = part.x;
    for (int step = 1; step < 32; step *= 2) {
      const float other = __shfl_up_sync(~0u, upto, step);
      if (static_cast<int>(lane) >= step) upto = fmaxf(upto, other);
    }
    upto = fmaxf(upto, kept.max);
    float before = __shfl_up_sync(~0u, upto, 1);
    if (lane == 0) before = kept.max;
    Softmax own{before, 0.0f};
    const Merge m = merge(own, {part.x, part.y});
    if (s < n) factors[s] = m;
    const float added = part.y * m.gain;
    for (std::uint32_t l = 0; l < 32 && begin + l < n; ++l)
      kept.sum = fmaf(kept.sum, __shfl_sync(~0u, m.keep, l), __shfl_sync(~0u, added, l));
    kept.max = __shfl_sync(~0u, upto, 31);
  }
}

// The segments that query i of a row meets, where their partial results begin.
struct Parts {
  std::size_t base;
  std::uint32_t n;
};
__device__ inline Parts parts_of(const AttentionParams& p,
                                 const KvRow& row,
                                 std::uint32_t row_index,
                                 std::uint32_t i,
                                 std::uint32_t head) {
  const KeyRange seen = keys_of(p, row, i);
  const std::uint32_t row_first = keys_of(p, row, 0).begin / kSegment,
                      first = seen.begin / kSegment;
  return {part_index(p, row_index, i, head, first - row_first),
          (seen.end - 1) / kSegment + 1 - first};
}

// One query and head by one warp; rows a multiple of 4 long, at most kDim. factors: 32 of the
// warp's own, in shared memory.
template <int kDim>
__device__ void combine_by_warp(const AttentionParams& p,
                                const KvRow& row,
                                std::uint32_t row_index,
                                std::uint32_t i,
                                std::uint32_t head,
                                Merge* factors) {
  constexpr int kFours = (kDim + 127) / 128;
  const std::uint32_t lane = threadIdx.x % 32;
  const Parts parts = parts_of(p, row, row_index, i, head);
  Softmax kept{minus_infinity(), 0.0f};
  float out[kFours][4] = {};
  for (std::uint32_t begin = 0; begin < parts.n; begin += 32) {
    const std::uint32_t n_here = min(32u, parts.n - begin);
    __syncwarp();
    find_factors(p.part_ml + parts.base + begin, n_here, kept, factors);
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kFours; ++j) {
      const std::uint32_t d = 4 * lane + 128 * j;
      if (d >= p.dim) continue;
      const float* const from = p.part_out + (parts.base + begin) * p.dim + d;
#pragma unroll 8
      for (std::uint32_t s = 0; s < n_here; ++s) {
        const float4 part = __ldcg(reinterpret_cast<const float4*>(from + std::size_t{s} * p.dim));
        const Merge f = factors[s];
        out[j][0] = fmaf(out[j][0], f.keep, part.x * f.gain);
        out[j][1] = fmaf(out[j][1], f.keep, part.y * f.gain);
        out[j][2] = fmaf(out[j][2], f.keep, part.z * f.gain);
        out[j][3] = fmaf(out[j][3], f.keep, part.w * f.gain);
      }
    }
  }
  const float keep = p.sinks ? add_sink(kept, p.sinks[head]) : 1.0f;
  float* const to = p.out.row(row.first_token + i) + std::size_t{head} * p.dim;
#pragma unroll
  for (int j = 0; j < kFours; ++j) {
    const std::uint32_t d = 4 * lane + 128 * j;
    if (d >= p.dim) continue;
#pragma unroll
    for (int e = 0; e < 4; ++e) to[d + e] = out[j][e] * keep / kept.sum;
  }
}

}  // namespace kvasir::backend::cuda
