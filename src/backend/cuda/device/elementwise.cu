// A row's bits depend on the row alone: the number of threads, and with it the order of a norm's
// additions, follows from the group's length only (docs/numerics.md).
#include "backend/cuda/device/activation.cuh"
#include "backend/cuda/device/chain.cuh"
#include "backend/cuda/device/elementwise.h"
#include "backend/cuda/device/math.cuh"
#include "backend/cuda/device/norm.cuh"

namespace kvasir::backend::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::uint32_t kWarpGroup = 512;  // groups up to so long are a warp's

bool is_vectored(const void* data, std::size_t stride, std::uint32_t n) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && stride % 4 == 0 && n % 4 == 0;
}

__global__ void norm_by_warps(NormParams p) {
  begin_early();
  const std::uint32_t n_groups = p.x.n_cols / p.group;
  const std::size_t item = std::size_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32;
  if (item >= std::size_t{p.x.n_rows} * n_groups) return;
  norm_group<false, false>(p, item / n_groups,
                           static_cast<std::uint32_t>(item % n_groups) * p.group);
}

template <bool kFour>
__global__ void norm_by_blocks(NormParams p) {
  begin_early();
  const std::uint32_t n_groups = p.x.n_cols / p.group;
  norm_group<true, kFour>(p, blockIdx.x / n_groups, blockIdx.x % n_groups * p.group);
}

__global__ void norm_kept_by_warps(NormParams p) {
  let_next_start();
  const std::uint32_t n_groups = p.x.n_cols / p.group;
  const std::size_t item = std::size_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32;
  if (item >= std::size_t{p.x.n_rows} * n_groups) return await_previous();
  norm_kept<false>(p, item / n_groups, static_cast<std::uint32_t>(item % n_groups) * p.group);
}

__global__ void __launch_bounds__(1024, 2) norm_kept_by_blocks(NormParams p) {
  let_next_start();
  const std::uint32_t n_groups = p.x.n_cols / p.group;
  norm_kept<true>(p, blockIdx.x / n_groups, blockIdx.x % n_groups * p.group);
}

// Of a head's columns the last ones may be missing: those behind its pairs, of the last head.
__host__ __device__ std::uint32_t heads_of(const RopeParams& p) {
  return (p.x.n_cols + p.head_dim - 1) / p.head_dim;
}

__global__ void rope_kernel(RopeParams p) {
  begin_early();
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::uint32_t a_row = heads_of(p) * p.n_pairs;
  if (i >= std::size_t{p.x.n_rows} * a_row) return;
  const std::size_t token = i / a_row;
  const auto in_row = static_cast<std::uint32_t>(i % a_row);
  const std::uint32_t pair = in_row % p.n_pairs;
  float* const head = p.x.row(token) + std::size_t{in_row / p.n_pairs} * p.head_dim;
  const std::size_t at = std::size_t{p.positions[token]} * p.n_pairs + pair;
  rotate_pair(head, pair, p.n_pairs, p.interleaved != 0, p.cos[at], p.sin[at]);
}

// f(row, column) for every element or four of them: columns over x, rows over y.
template <bool kFour, class F>
__device__ void for_elements(std::uint32_t n_rows, std::uint32_t n_cols, F&& f) {
  begin_early();
  const std::uint32_t c = (blockIdx.x * blockDim.x + threadIdx.x) * Pack<kFour>::kSize;
  if (c >= n_cols) return;
  for (std::size_t r = blockIdx.y; r < n_rows; r += gridDim.y) f(r, c);
}

template <bool kFour>
__global__ void act_mul_kernel(ActMulParams p) {
  for_elements<kFour>(p.gate.n_rows, p.gate.n_cols, [&](std::size_t r, std::uint32_t c) {
    auto e = Pack<kFour>::load(p.gate.row(r) + c);
    const auto up = Pack<kFour>::load(p.up.row(r) + c);
#pragma unroll
    for (std::uint32_t i = 0; i < e.kSize; ++i)
      e.v[i] = activate(p.activation, p.limit, e.v[i], up.v[i]);
    if (p.out.data) e.store(p.out.row(r) + c);
    e.copy(p.copy, r, c);
  });
}

template <bool kFour>
__global__ void gate_rows_kernel(RowsParams p) {
  for_elements<kFour>(p.x.n_rows, p.x.n_cols, [&](std::size_t r, std::uint32_t c) {
    auto e = Pack<kFour>::load(p.x.row(r) + c);
    const float gate = sigmoid_of(p.y.row(r)[0]);
#pragma unroll
    for (std::uint32_t i = 0; i < e.kSize; ++i) e.v[i] *= gate;
    e.store(p.x.row(r) + c);
  });
}

template <bool kFour>
__global__ void add_scaled_kernel(RowsParams p) {
  for_elements<kFour>(p.x.n_rows, p.x.n_cols, [&](std::size_t r, std::uint32_t c) {
    auto e = Pack<kFour>::load(p.x.row(r) + c);
    const auto y = Pack<kFour>::load(p.y.row(r) + c);
#pragma unroll
    for (std::uint32_t i = 0; i < e.kSize; ++i) e.v[i] += y.v[i] * p.alpha;
    e.store(p.x.row(r) + c);
  });
}

template <bool kFour>
__global__ void scale_kernel(RowsParams p) {
  for_elements<kFour>(p.x.n_rows, p.x.n_cols, [&](std::size_t r, std::uint32_t c) {
    auto e = Pack<kFour>::load(p.x.row(r) + c);
#pragma unroll
    for (std::uint32_t i = 0; i < e.kSize; ++i) {
      e.v[i] *= p.alpha;
      if (p.softcap > 0.0f) e.v[i] = p.softcap * tanhf(e.v[i] / p.softcap);
    }
    e.store(p.x.row(r) + c);
  });
}

template <bool kFour>
__global__ void gather_kernel(GatherParams p) {
  for_elements<kFour>(p.out.n_rows, p.out.n_cols, [&](std::size_t r, std::uint32_t c) {
    Pack<kFour>::load(p.x.row(p.rows[r]) + c).store(p.out.row(r) + c);
  });
}

// kernel(four, one): by whether all matrices allow accesses of 16 bytes.
template <class Params>
void launch_elements(Queue& queue,
                     void (*four)(Params),
                     void (*one)(Params),
                     bool vectored,
                     std::uint32_t n_rows,
                     std::uint32_t n_cols,
                     const Params& p) {
  if (n_rows == 0 || n_cols == 0) return;
  const std::uint32_t width = vectored ? 4 : 1, per_row = n_cols / width;
  const unsigned n_threads = per_row < kThreads ? (per_row + 31) / 32 * 32 : kThreads;
  const dim3 grid((per_row + n_threads - 1) / n_threads, n_rows < 65535 ? n_rows : 65535);
  queue.launch_early(vectored ? four : one, grid, n_threads, 0, p);
}

template <class M>
bool is_vectored(const M& m) {
  return is_vectored(m.data, m.stride, m.n_cols);
}

}  // namespace

void launch_norm(Queue& queue, const NormParams& p) {
  if (p.x.n_rows == 0) return;
  const bool vectored = is_vectored(p.x.data, p.x.stride, p.group) &&
                        is_vectored(p.out.data, p.out.stride, p.group) &&
                        is_vectored(p.added.data, p.added.stride, p.group) &&
                        is_vectored(p.weight, 0, p.group);
  const std::uint32_t n_items = p.x.n_rows * (p.x.n_cols / p.group);
  if (p.group <= kWarpGroup) {
    const std::uint32_t a_block = n_items < 1024 ? 1 : 8;
    queue.launch_early(vectored ? norm_kept_by_warps : norm_by_warps,
                       dim3((n_items + a_block - 1) / a_block), 32 * a_block, 0, p);
  } else {
    const unsigned n_threads = p.group >= 4096 ? 1024 : p.group >= 2048 ? 512 : 256;
    const bool is_kept = vectored && p.group <= n_threads * 4 * kKeptFours<true>;
    queue.launch_early(is_kept    ? norm_kept_by_blocks
                       : vectored ? norm_by_blocks<true>
                                  : norm_by_blocks<false>,
                       dim3(n_items), n_threads, 0, p);
  }
}

void launch_rope(Queue& queue, const RopeParams& p) {
  const std::size_t n = std::size_t{p.x.n_rows} * heads_of(p) * p.n_pairs;
  if (n == 0) return;
  queue.launch_early(rope_kernel, dim3(static_cast<unsigned>((n + kThreads - 1) / kThreads)),
                     kThreads, 0, p);
}

void launch_act_mul(Queue& queue, const ActMulParams& p) {
  const bool vectored = is_vectored(p.gate) && is_vectored(p.up) && is_vectored(p.out);
  launch_elements(queue, act_mul_kernel<true>, act_mul_kernel<false>, vectored, p.gate.n_rows,
                  p.gate.n_cols, p);
}
void launch_gate_rows(Queue& queue, const RowsParams& p) {
  launch_elements(queue, gate_rows_kernel<true>, gate_rows_kernel<false>, is_vectored(p.x),
                  p.x.n_rows, p.x.n_cols, p);
}
void launch_add_scaled(Queue& queue, const RowsParams& p) {
  launch_elements(queue, add_scaled_kernel<true>, add_scaled_kernel<false>,
                  is_vectored(p.x) && is_vectored(p.y), p.x.n_rows, p.x.n_cols, p);
}
void launch_scale(Queue& queue, const RowsParams& p) {
  launch_elements(queue, scale_kernel<true>, scale_kernel<false>, is_vectored(p.x), p.x.n_rows,
                  p.x.n_cols, p);
}
void launch_gather(Queue& queue, const GatherParams& p) {
  launch_elements(queue, gather_kernel<true>, gather_kernel<false>,
                  is_vectored(p.x) && is_vectored(p.out), p.out.n_rows, p.out.n_cols, p);
}

}  // namespace kvasir::backend::cuda
