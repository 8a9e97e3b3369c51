// Queries and keys of a step on their way to attention, and its keys and values into their blocks:
// a warp a head, which norms it, turns it and stores it, by the very code of the single ops.
#include "backend/cuda/device/chain.cuh"
#include "backend/cuda/device/elementwise.h"
#include "backend/cuda/device/kept_head.cuh"
#include "backend/cuda/device/kv_side.cuh"
#include "backend/cuda/device/norm.cuh"

namespace kvasir::backend::cuda {
namespace {

constexpr unsigned kWarps = 4;

__device__ void norm_head(const QueryKeyParams& p,
                          const Mat& x,
                          const float* weight,
                          std::uint32_t token,
                          std::uint32_t head) {
  if (!weight) return;
  const NormParams norm{.x = {x.data, x.n_rows, x.n_cols, x.stride},
                        .out = x,
                        .weight = weight,
                        .bias = nullptr,
                        .group = p.head_dim,
                        .kind = NormKind::rms,
                        .eps = p.eps,
                        .scale = 1.0f,
                        .added = {},
                        .sum = {},
                        .copy = {}};
  norm_group<false, false>(norm, token, head * p.head_dim);
  __syncwarp();
}

__device__ void rotate_head(const QueryKeyParams& p, float* head, std::uint32_t token) {
  const std::size_t at = std::size_t{p.positions[token]} * p.n_pairs;
  for (std::uint32_t pair = threadIdx.x % 32; pair < p.n_pairs; pair += 32)
    rotate_pair(head, pair, p.n_pairs, p.interleaved != 0, p.cos[at + pair], p.sin[at + pair]);
  __syncwarp();
}

__device__ void store_head(const QueryKeyParams& p,
                           const float* x,
                           std::byte* plane,
                           std::uint32_t token,
                           std::uint32_t head) {
  const KvRow& row = p.rows.rows[p.rows.row_of_token[token]];
  const std::uint32_t position = row.length + (token - row.first_token);
  const std::size_t index =
      (std::size_t{row.blocks[position / p.block_tokens]} * (p.k.n_cols / p.head_dim) + head) *
          p.block_tokens +
      position % p.block_tokens;
  for (std::uint32_t i = threadIdx.x % 32; i < p.head_dim; i += 32)
    store_as(p.type, plane, index * p.head_dim + i, x[i]);
}

__global__ void __launch_bounds__(32 * kWarps)
    query_key_kernel(const __grid_constant__ QueryKeyParams p) {
  begin_early();
  const std::uint32_t n_q = p.q.n_cols / p.head_dim, n_k = p.k.n_cols / p.head_dim;
  const std::uint32_t item = blockIdx.x * kWarps + threadIdx.x / 32, token = blockIdx.y;
  if (item >= n_q + 2 * n_k) return;
  if (item >= n_q + n_k) {
    const std::uint32_t head = item - n_q - n_k;
    store_head(p, p.v.row(token) + std::size_t{head} * p.head_dim, p.values, token, head);
    return;
  }
  const bool is_key = item >= n_q;
  const std::uint32_t head = is_key ? item - n_q : item;
  const Mat& x = is_key ? p.k : p.q;
  float* const at = x.row(token) + std::size_t{head} * p.head_dim;
  norm_head(p, x, is_key ? p.k_norm : p.q_norm, token, head);
  if (p.n_pairs > 0) rotate_head(p, at, token);
  if (is_key) store_head(p, at, p.keys, token, head);
}

// The same of heads that KeptHead takes.
__global__ void __launch_bounds__(32 * kWarps)
    query_key_kept(const __grid_constant__ QueryKeyParams p) {
  let_next_start();
  const std::uint32_t n_q = p.q.n_cols / p.head_dim, n_k = p.k.n_cols / p.head_dim;
  const std::uint32_t item = blockIdx.x * kWarps + threadIdx.x / 32, token = blockIdx.y;
  if (item >= n_q + 2 * n_k) return await_previous();
  const HeadKind kind = item < n_q         ? HeadKind::query
                        : item < n_q + n_k ? HeadKind::key
                                           : HeadKind::value;
  KeptHead h(p, kind, token, kind == HeadKind::query ? item : (item - n_q) % n_k);
  h.load_tables(p.rows.rows[p.rows.row_of_token[token]]);
  await_previous();
  h.load_elements();
  h.prepare();
  if (kind != HeadKind::value && h.is_there)
    KeptHead::load(
        (kind == HeadKind::query ? p.q : p.k).row(token) + std::size_t{h.head} * p.head_dim + h.at,
        h.v);
  if (kind != HeadKind::query) h.store();
}

}  // namespace

bool takes_kept_heads(const QueryKeyParams& p) {
  const auto is_aligned = [](const auto& m) {
    return reinterpret_cast<std::uintptr_t>(m.data) % 16 == 0 && m.stride % 4 == 0;
  };
  const auto is_whole = [](const float* table) {
    return reinterpret_cast<std::uintptr_t>(table) % 16 == 0;
  };
  return (p.head_dim == 64 || p.head_dim == 128) && !p.interleaved &&
         (p.n_pairs == 0 || p.n_pairs * 2 == p.head_dim) && is_aligned(p.q) && is_aligned(p.k) &&
         is_aligned(p.v) && is_whole(p.q_norm) && is_whole(p.k_norm) && is_whole(p.cos) &&
         is_whole(p.sin);
}

void launch_query_key(Queue& queue, const QueryKeyParams& p) {
  if (p.q.n_rows == 0) return;
  const std::uint32_t n_items = (p.q.n_cols + 2 * p.k.n_cols) / p.head_dim;
  queue.launch_early(takes_kept_heads(p) ? query_key_kept : query_key_kernel,
                     dim3((n_items + kWarps - 1) / kWarps, p.q.n_rows), 32 * kWarps, 0, p);
}

}  // namespace kvasir::backend::cuda
