// Norms of a group by a warp or a block, and rope of a pair: shared by the kernels that do one of
// them and those that do several things on the way.
#pragma once

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
        *reinterpret_cast<uint2*>(static_cast<std::uint16_t*>(to.data) + row * to.stride +
                                  column) = {pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3])};
    } else if (to.data) {
      static_cast<std::uint16_t*>(to.data)[row * to.stride + column] =
          static_cast<std::uint16_t>(pack_bf16(v[0], 0.0f));
    }
  }
};

// Sums of a team of threads: a warp, or all warps of a block in ascending order.
template <bool kBlock>
__device__ float sum_of_team(float x, float* shared) {
  x = sum_of_warp(x);
  if constexpr (!kBlock) return x;
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0.0f;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) sum += shared[w];
  __syncthreads();
  return sum;
}

// Element i of a group is thread (i mod n_threads)'s, ascending: the same bits with kFour or not,
// because a thread's four sums go by i mod 4 in either case.
template <bool kBlock, bool kFour>
__device__ void norm_group(const NormParams& p, std::size_t row, std::uint32_t begin) {
  __shared__ float shared[32];
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
  const auto sum_of = [&](auto&& term) {
    float sums[4] = {};
    for_each([&](std::uint32_t at, std::uint32_t place) {
      const Elements e = Elements::load(x + at);
#pragma unroll
      for (std::uint32_t i = 0; i < Elements::kSize; ++i) {
        float& sum = sums[kFour ? i : place];
        sum = term(sum, e.v[i]);
      }
    });
    return sum_of_team<kBlock>((sums[0] + sums[1]) + (sums[2] + sums[3]), shared);
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
  if (p.kind == NormKind::layer) mean = sum_of([](float s, float v) { return s + v; }) / n;
  const float squares = sum_of([&](float s, float v) { return fmaf(v - mean, v - mean, s); });
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
