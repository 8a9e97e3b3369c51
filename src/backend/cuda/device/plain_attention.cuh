// One query and head by one warp in f32: the scores of 64 keys at a time, two keys a lane, and the
// output: elements lane, lane + 32, … a lane, or fours of them where keys are read so.
#pragma once

#include "backend/cuda/device/attention.cuh"
#include "backend/cuda/device/kv_side.cuh"

namespace kvasir::backend::cuda {

struct PlainShape {
  std::uint32_t key_dim, value_dim;
  float out_scale;
  bool rounds;  // probabilities to bf16
};

// Keys: at(index) finds a key's row; key(at, d) and value(at, d) are its elements, or, of kFours,
// the float4 from d on, d a multiple of 4.
template <int kPerLane, bool kFours = false>
struct PlainOutput {
  Softmax softmax{minus_infinity(), 0.0f};
  float o[kPerLane] = {};

  template <class F>
  __device__ void for_each(std::uint32_t dim, F&& f) {
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const std::uint32_t lane = threadIdx.x % 32,
                          d = kFours ? 4 * lane + 128 * (j / 4) + j % 4 : lane + 32 * j;
      if (d < dim) f(d, o[j]);
    }
  }

  // Keys [begin, end), which lie in one segment, tile by tile onto what is here.
  template <class Keys, class Score>
  __device__ void walk(const PlainShape& shape,
                       const Keys& keys,
                       const Score& score,
                       const float* q,
                       std::uint32_t begin,
                       std::uint32_t end) {
    for (std::uint32_t tile = begin / kTile * kTile; tile < end; tile += kTile)
      take_tile(shape, keys, score, q, tile, begin, end);
  }

  // The same from nothing, merged onto what is here.
  template <class Keys, class Score>
  __device__ void add_segment(const PlainShape& shape,
                              const Keys& keys,
                              const Score& score,
                              const float* q,
                              std::uint32_t begin,
                              std::uint32_t end) {
    PlainOutput segment;
    segment.walk(shape, keys, score, q, begin, end);
    const Merge m = merge(softmax, segment.softmax);
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) o[j] = fmaf(o[j], m.keep, segment.o[j] * m.gain);
  }

 private:
  template <class Keys, class Score>
  __device__ void take_tile(const PlainShape& shape,
                            const Keys& keys,
                            const Score& score,
                            const float* q,
                            std::uint32_t tile,
                            std::uint32_t begin,
                            std::uint32_t end) {
    const std::uint32_t lane = threadIdx.x % 32;
    float p[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const std::uint32_t j = tile + lane + 32 * h;
      p[h] = minus_infinity();
      if (j < begin || j >= end) continue;
      const auto at = keys.at(j);
      float s = 0.0f;
      if constexpr (kFours) {
#pragma unroll 4
        for (std::uint32_t d = 0; d < shape.key_dim; d += 4) {
          const float4 k = keys.key(at, d), x = *reinterpret_cast<const float4*>(q + d);
          s = fmaf(x.w, k.w, fmaf(x.z, k.z, fmaf(x.y, k.y, fmaf(x.x, k.x, s))));
        }
      } else {
        for (std::uint32_t d = 0; d < shape.key_dim; ++d) s = fmaf(q[d], keys.key(at, d), s);
      }
      p[h] = score(s);
    }
    const float tile_max = max_of_warp(fmaxf(p[0], p[1]));
    const float max = fmaxf(softmax.max, tile_max * shape.out_scale), reference = reference_of(max);
    const float keep = exp2_of(softmax.max - reference);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      p[h] = exp2_of(fmaf(p[h], shape.out_scale, -reference));
      if (shape.rounds) p[h] = round_to_bf16(p[h]);
    }
    softmax.sum = fmaf(softmax.sum, keep, sum_of_warp(p[0] + p[1]));
    softmax.max = max;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) o[i] *= keep;
#pragma unroll 2
    for (std::uint32_t j = begin > tile ? begin - tile : 0; j < kTile && tile + j < end; ++j) {
      const float weight = __shfl_sync(~0u, j < 32 ? p[0] : p[1], static_cast<int>(j % 32));
      const auto at = keys.at(tile + j);
      if constexpr (kFours) {
#pragma unroll
        for (int i = 0; i < kPerLane; i += 4) {
          const std::uint32_t d = 4 * lane + 128 * (i / 4);
          if (d >= shape.value_dim) continue;
          const float4 v = keys.value(at, d);
          o[i] = fmaf(weight, v.x, o[i]);
          o[i + 1] = fmaf(weight, v.y, o[i + 1]);
          o[i + 2] = fmaf(weight, v.z, o[i + 2]);
          o[i + 3] = fmaf(weight, v.w, o[i + 3]);
        }
      } else {
        for_each(shape.value_dim,
                 [&](std::uint32_t d, float& x) { x = fmaf(weight, keys.value(at, d), x); });
      }
    }
  }
};

}  // namespace kvasir::backend::cuda
