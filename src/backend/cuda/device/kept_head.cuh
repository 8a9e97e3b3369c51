// A head of 64 or 128 elements, turned in halves or not at all, on its way to attention: four
// elements a lane. By a kernel of its own (query_key.cu), or by the block that attends.
#pragma once

#include "backend/cuda/device/elementwise.h"
#include "backend/cuda/device/math.cuh"

namespace kvasir::backend::cuda {

enum class HeadKind { query, key, value };

struct KeptHead {
  const QueryKeyParams& p;
  HeadKind kind;
  std::uint32_t token, head, at;  // at: of the lane's elements in the head
  bool is_there;
  float v[4], weight[4], c[4], s[4];
  std::size_t place;  // in the plane of keys or values

  __device__ KeptHead(const QueryKeyParams& params,
                      HeadKind what,
                      std::uint32_t of_token,
                      std::uint32_t number)
      : p(params),
        kind(what),
        token(of_token),
        head(number),
        at(threadIdx.x % 32 * 4),
        is_there(at < p.head_dim) {}

  __device__ static void load(float* to, const float* from) {
    *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(from);
  }
  __device__ const float* norm_weight() const {
    return kind == HeadKind::query ? p.q_norm : p.k_norm;
  }
  // Tables, rows and positions, which no kernel of a step writes: before the kernels ahead have
  // ended. row: the token's.
  __device__ void load_tables(const KvRow& row) {
    if (kind != HeadKind::query) find_place(row);
    if (kind == HeadKind::value || !is_there) return;
    if (const float* const norm = norm_weight()) load(weight, norm + at);
    if (p.n_pairs == 0) return;
    const std::size_t pair = std::size_t{p.positions[token]} * p.n_pairs + at % p.n_pairs;
    load(c, p.cos + pair);
    load(s, p.sin + pair);
  }
  __device__ void find_place(const KvRow& row) {
    const std::uint32_t position = row.length + (token - row.first_token);
    place =
        ((std::size_t{row.blocks[position / p.block_tokens]} * (p.k.n_cols / p.head_dim) + head) *
             p.block_tokens +
         position % p.block_tokens) *
            p.head_dim +
        at;
  }

  __device__ void load_elements() {
    const std::size_t in_row = std::size_t{head} * p.head_dim + at;
    const float* const row = kind == HeadKind::query ? p.q.row(token)
                             : kind == HeadKind::key ? p.k.row(token)
                                                     : p.v.row(token);
    if (is_there) load(v, row + in_row);
  }
  // Queries and keys, by all lanes.
  __device__ void prepare() {
    if (kind == HeadKind::value) return;
    if (norm_weight()) norm();
    if (p.n_pairs > 0) rotate();
  }
  __device__ void norm() {
    float sums[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] = is_there ? fmaf(v[i], v[i], 0.0f) : 0.0f;
    const float squares = sum_of_warp((sums[0] + sums[1]) + (sums[2] + sums[3]));
    const float inverse = 1.0f / sqrtf(squares / static_cast<float>(p.head_dim) + p.eps);
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = v[i] * inverse * weight[i];
  }
  __device__ void rotate() {
    const bool is_first = at < p.n_pairs;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float other = __shfl_xor_sync(~0u, v[i], static_cast<int>(p.n_pairs / 4));
      v[i] = is_first ? fmaf(-other, s[i], v[i] * c[i]) : fmaf(other, s[i], v[i] * c[i]);
    }
  }

  __device__ uint2 as_bf16() const {
    return {bf16_bits(v[0]) | bf16_bits(v[1]) << 16, bf16_bits(v[2]) | bf16_bits(v[3]) << 16};
  }
  // A key or a value to its place.
  __device__ void store() const {
    if (!is_there) return;
    std::byte* const plane = kind == HeadKind::key ? p.keys : p.values;
    if (p.type == Type::bf16) {
      *reinterpret_cast<uint2*>(plane + place * 2) = as_bf16();
      return;
    }
    for (int i = 0; i < 4; ++i) store_as(p.type, plane, place + i, v[i]);
  }
};

}  // namespace kvasir::backend::cuda
