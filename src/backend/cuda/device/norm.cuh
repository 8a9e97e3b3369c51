// Norms of a group by a warp or a block, and rope of a pair: shared by the kernels that do one of
// them and those that do several things on the way.
#pragma once

#include "backend/cuda/device/chain.cuh"
#include "backend/cuda/device/elementwise.h"
#include "backend/cuda/device/math.cuh"

namespace kvasir::backend::cuda {
namespace {

// Four consecutive elements or, where rows are not made of such, one.
template <bool kFour>
struct Pack {
  static constexpr std::uint32_t kSize = kFour ? 4 : 1;
  float v[kSize];
  __device__ static Pack load(const float* from) {
    Pack out;
    if constexpr (kFour) {
      *reinterpret_cast<float4*>(out.v) = *reinterpret_cast<const float4*>(from);
    } else {
      out.v[0] = *from;
    }
    return out;
  }
  __device__ void store(float* to) const {
    if constexpr (kFour) {
      *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(v);
    } else {
      *to = v[0];
    }
  }
  __device__ void copy(const Bf16Copy& to, std::size_t row, std::uint32_t column) const {
    if constexpr (kFour) {
      if (to.data)
        *reinterpret_cast<uint2*>(static_cast<std::uint16_t*>(to.data) + to.place(row, column)) = {
            pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3])};
    } else if (to.data) {
      static_cast<std::uint16_t*>(to.data)[to.place(row, column)] =
          static_cast<std::uint16_t>(pack_bf16(v[0], 0.0f));
    }
  }
};

// Sums of a team of threads: a warp, or all warps of a block, a multiple of four, in ascending
// order. shared: of this sum alone.
struct WarpSums {
  float4 of[8];
};
template <bool kBlock>
__device__ float sum_of_team(float x, WarpSums& shared) {
  x = sum_of_warp(x);
  if constexpr (!kBlock) return x;
  if (threadIdx.x % 32 == 0) reinterpret_cast<float*>(shared.of)[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0.0f;
#pragma unroll
  for (unsigned i = 0; i < 8; ++i) {
    if (i * 128 >= blockDim.x) break;
    const float4 four = shared.of[i];
    sum = (((sum + four.x) + four.y) + four.z) + four.w;
  }
  return sum;
}

// Element i of a group is thread (i mod n_threads)'s, ascending: the same bits with kFour or not,
// because a thread's four sums go by i mod 4 in either case.
template <bool kBlock, bool kFour>
__device__ void norm_group(const NormParams& p, std::size_t row, std::uint32_t begin) {
  __shared__ WarpSums shared[2];
  using Elements = Pack<kFour>;
  const float* const x = p.x.row(row) + begin;
  float* const out = p.out.row(row) + begin;
  const unsigned lane = kBlock ? threadIdx.x : threadIdx.x % 32;
  const std::uint32_t step = (kBlock ? blockDim.x : 32) * 4;
  // f(i, element index within four, elements)
  const auto for_each = [&](auto&& f) {
    for (std::uint32_t at = lane * 4; at < p.group; at += step) {
      for (std::uint32_t i = 0; i < 4; i += Elements::kSize)
        if (at + i < p.group) f(at + i, i);
    }
  };
  const auto sum_of = [&](auto&& term, WarpSums& warps) {
    float sums[4] = {};
    for_each([&](std::uint32_t at, std::uint32_t place) {
      const Elements e = Elements::load(x + at);
#pragma unroll
      for (std::uint32_t i = 0; i < Elements::kSize; ++i) {
        float& sum = sums[kFour ? i : place];
        sum = term(sum, e.v[i]);
      }
    });
    return sum_of_team<kBlock>((sums[0] + sums[1]) + (sums[2] + sums[3]), warps);
  };
  if (p.added.data) {  // by the threads that read the sums below
    float* const sums = p.sum.row(row) + begin;
    const float* const added = p.added.row(row) + begin;
    for_each([&](std::uint32_t at, std::uint32_t) {
      Elements e = Elements::load(x + at);
      const Elements y = Elements::load(added + at);
#pragma unroll
      for (std::uint32_t i = 0; i < Elements::kSize; ++i) e.v[i] += y.v[i] * p.scale;
      e.store(sums + at);
    });
  }
  const auto n = static_cast<float>(p.group);
  float mean = 0.0f;
  if (p.kind == NormKind::layer)
    mean = sum_of([](float s, float v) { return s + v; }, shared[0]) / n;
  const float squares =
      sum_of([&](float s, float v) { return fmaf(v - mean, v - mean, s); }, shared[1]);
  const float inverse =
      p.kind == NormKind::l2 ? p.scale / sqrtf(squares + p.eps) : 1.0f / sqrtf(squares / n + p.eps);
  for_each([&](std::uint32_t at, std::uint32_t) {
    Elements e = Elements::load(x + at);
#pragma unroll
    for (std::uint32_t i = 0; i < Elements::kSize; ++i) {
      float y = (e.v[i] - mean) * inverse;
      if (p.weight) y *= p.weight[at + i];
      if (p.bias) y += p.bias[at + i];
      e.v[i] = y;
    }
    e.store(out + at);
    e.copy(p.copy, row, begin + at);
  });
}

// Fours of elements that a thread keeps of a group.
template <bool kBlock>
constexpr std::uint32_t kKeptFours = kBlock ? 2 : 4;

// The same of a group that fits its threads' registers: it is read once. The weight, which no
// kernel writes, is read before the kernels ahead have ended.
template <bool kBlock>
__device__ void norm_kept(const NormParams& p, std::size_t row, std::uint32_t begin) {
  __shared__ WarpSums shared[2];
  using Four = Pack<true>;
  constexpr std::uint32_t kFours = kKeptFours<kBlock>;
  const unsigned lane = kBlock ? threadIdx.x : threadIdx.x % 32;
  const std::uint32_t step = (kBlock ? blockDim.x : 32) * 4;
  Four kept[kFours], weights[kFours];
  // f(place, index of the four)
  const auto for_each = [&](auto&& f) {
#pragma unroll
    for (std::uint32_t k = 0; k < kFours; ++k)
      if (lane * 4 + k * step < p.group) f(lane * 4 + k * step, k);
  };
  if (p.weight)
    for_each([&](std::uint32_t at, std::uint32_t k) { weights[k] = Four::load(p.weight + at); });
  await_previous();
  for_each(
      [&](std::uint32_t at, std::uint32_t k) { kept[k] = Four::load(p.x.row(row) + begin + at); });
  if (p.added.data) {
    for_each([&](std::uint32_t at, std::uint32_t k) {
      const Four y = Four::load(p.added.row(row) + begin + at);
#pragma unroll
      for (std::uint32_t i = 0; i < 4; ++i) kept[k].v[i] += y.v[i] * p.scale;
      kept[k].store(p.sum.row(row) + begin + at);
    });
  }
  const auto sum_of = [&](auto&& term, WarpSums& warps) {
    float sums[4] = {};
    for_each([&](std::uint32_t, std::uint32_t k) {
#pragma unroll
      for (std::uint32_t i = 0; i < 4; ++i) sums[i] = term(sums[i], kept[k].v[i]);
    });
    return sum_of_team<kBlock>((sums[0] + sums[1]) + (sums[2] + sums[3]), warps);
  };
  const auto n = static_cast<float>(p.group);
  float mean = 0.0f;
  if (p.kind == NormKind::layer)
    mean = sum_of([](float s, float v) { return s + v; }, shared[0]) / n;
  const float squares =
      sum_of([&](float s, float v) { return fmaf(v - mean, v - mean, s); }, shared[1]);
  const float inverse =
      p.kind == NormKind::l2 ? p.scale / sqrtf(squares + p.eps) : 1.0f / sqrtf(squares / n + p.eps);
  for_each([&](std::uint32_t at, std::uint32_t k) {
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i) {
      float y = (kept[k].v[i] - mean) * inverse;
      if (p.weight) y *= weights[k].v[i];
      if (p.bias) y += p.bias[at + i];
      kept[k].v[i] = y;
    }
    kept[k].store(p.out.row(row) + begin + at);
    kept[k].copy(p.copy, row, begin + at);
  });
}

// Pair i of a head is (i, i + n_pairs), or (2i, 2i + 1) when interleaved.
__device__ void rotate_pair(
    float* head, std::uint32_t pair, std::uint32_t n_pairs, bool is_interleaved, float c, float s) {
  float* const first = head + (is_interleaved ? 2 * pair : pair);
  float* const second = head + (is_interleaved ? 2 * pair + 1 : pair + n_pairs);
  const float a = *first, b = *second;
  *first = fmaf(-b, s, a * c);
  *second = fmaf(a, s, b * c);
}

}  // namespace
}  // namespace kvasir::backend::cuda
