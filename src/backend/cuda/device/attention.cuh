// What attention's kernels share: which keys a query sees, and how segments merge.
#pragma once

#include "backend/cuda/device/attention.h"
#include "backend/cuda/device/math.cuh"

namespace kvasir::backend::cuda {

__device__ inline float minus_infinity() { return __uint_as_float(0xff800000u); }

struct KeyRange {
  std::uint32_t begin, end;  // positions
};
// Keys that query i of a row sees.
__device__ inline KeyRange keys_of(const AttentionParams& p, const KvRow& row, std::uint32_t i) {
  const std::uint32_t n = row.length + row.n_new, next = row.length + i + 1;
  if (p.most_keys != 0) return {0, min(next, p.most_keys)};
  const std::uint32_t begin = p.window != 0 && next > p.window ? next - p.window : 0;
  if (p.both_ways == 0) return {begin, next};
  return {begin, p.window != 0 && p.window - 1 < n - next ? next + p.window - 1 : n};
}

__device__ inline float score_of(const AttentionParams& p, float s) {
  return p.has_softcap != 0 ? tanhf(s * p.in_scale) : s;
}

// An online softmax's place: the maximum in base 2 and the sum of 2^(x - maximum). Nothing seen: a
// maximum of minus infinity, against which 0 stands.
struct Softmax {
  float max, sum;
};
__device__ inline float reference_of(float max) { return max == minus_infinity() ? 0.0f : max; }

struct Merge {
  float keep, gain;  // outputs: fma(kept, keep, added · gain)
};
__device__ inline Merge merge(Softmax& kept, Softmax added) {
  const float max = fmaxf(kept.max, added.max), reference = reference_of(max);
  const Merge m{exp2_of(kept.max - reference), exp2_of(added.max - reference)};
  kept.sum = fmaf(kept.sum, m.keep, added.sum * m.gain);
  kept.max = max;
  return m;
}
// The sink's logit joins; what outputs are multiplied by.
__device__ inline float add_sink(Softmax& kept, float sink) {
  const float base2 = sink * kLog2E, max = fmaxf(kept.max, base2);
  const float keep = exp2_of(kept.max - max);
  kept.sum = fmaf(kept.sum, keep, exp2_of(base2 - max));
  kept.max = max;
  return keep;
}

// Whether a launch is for this row.
__device__ inline bool serves(const AttentionParams& p, const KvRow& row) {
  const bool is_few = row.n_new <= kFewTokens;
  return row.is_encoded == p.is_encoded && is_few == (p.is_few != 0);
}

// Partial results of token i of row `row`; `segment` counts from the row's first.
__device__ inline std::size_t part_index(const AttentionParams& p,
                                         std::uint32_t row,
                                         std::uint32_t i,
                                         std::uint32_t head,
                                         std::uint32_t segment) {
  return ((std::size_t{row} * p.part_tokens + i) * p.n_heads + head) * p.max_segments + segment;
}

}  // namespace kvasir::backend::cuda
