// A warp owns a tile of 16 outputs and walks K once. Weights and x come in stages of one or two
// chunks through a ring in shared memory, many in flight; operands go to registers a few steps
// before they are multiplied, across the borders of stages too, so that the chain of products waits
// for nothing but itself.
#pragma once

#include "backend/cuda/device/decode.cuh"
#include "backend/cuda/device/mma.cuh"
#include "backend/cuda/device/product.h"

namespace kvasir::backend::cuda {

constexpr unsigned kMaxSlots = 12;     // of a ring
constexpr unsigned kRingAt = 128;      // bytes: barriers come first
constexpr unsigned kSharedOfSm = 227u << 10;

// kNt: tiles of 8 rows. One: x is f32; more: bf16.
template <class F, int kNt>
struct Plan {
  static constexpr bool kIsF32 = kNt == 1;
  static constexpr unsigned kChunks = kIsF32 ? 2 : 1;  // of K in one stage
  static constexpr unsigned kRows = 8 * kNt;
  // Bytes of one row in a stage, and so many more that operands are read from different banks.
  static constexpr unsigned kXBytes = kChunks * kChunkK * (kIsF32 ? 4 : 2);
  static constexpr unsigned kXStride = kXBytes + (kIsF32 ? 32 : 16);
  static constexpr unsigned kWeightBytes = kChunks * kChunkK * 2;  // dense
  static constexpr unsigned kWeightStride = kWeightBytes + 16;
  // Operands in registers: of the steps at hand and the next ones.
  static constexpr unsigned kRing = kNt <= 2 ? 4 : 2, kAhead = kRing - 1;

  __host__ __device__ static unsigned tile_bytes(unsigned chunk_bytes) {
    return F::kIsDense ? kTileRows * kWeightStride : kChunks * chunk_bytes;
  }
};

// What a block works on.
struct Part {
  Weight w;
  const float* bias;
  std::uint32_t first, n_rows;         // rows of out
  std::uint32_t x_column, out_column;  // where the head's columns begin
};

template <bool kIsGrouped, unsigned kRows>
__device__ inline Part part_of_block(const ProductArgs& p) {
  const auto tile = [&](std::uint32_t index) {
    const std::uint32_t first = index * kRows;
    return Part{p.weight, p.bias, first, min(kRows, p.n_rows - first), 0, 0};
  };
  if constexpr (!kIsGrouped) {
    return tile(blockIdx.y);
  } else {
    const auto bias = [&](std::uint32_t e) {
      return p.grouped.biases ? p.grouped.biases[e] : nullptr;
    };
    if (!p.grouped.items) {
      Part part = tile(blockIdx.z);
      part.w = p.grouped.weights[blockIdx.y];
      part.bias = bias(blockIdx.y);
      part.x_column = blockIdx.y * p.grouped.x_step;
      part.out_column = blockIdx.y * p.grouped.out_step;
      return part;
    }
    const ExpertItem item = p.grouped.items[blockIdx.y];
    return {p.grouped.weights[item.expert], bias(item.expert), item.first, item.n_rows, 0, 0};
  }
}

template <bool kIsGrouped>
__device__ inline std::uint32_t x_row(const ProductArgs& p, std::uint32_t row) {
  if constexpr (kIsGrouped)
    if (p.grouped.slots) return p.grouped.slots[row] / p.grouped.top_k;
  return row;
}

// n_bytes of a run that has `size` bytes left; the rest of the run as zeros.
__device__ inline void copy_run(std::uint32_t to,
                                const void* from,
                                std::uint32_t n_bytes,
                                std::uint32_t size,
                                std::uint32_t barrier) {
  if (n_bytes > 0) copy_bulk(to, from, n_bytes, barrier);
  for (std::uint32_t i = n_bytes; i < size; i += 16) zero16(to + i);
}

// A stage's weights of a tile, by its warp.
template <class F, class P>
__device__ inline void load_weights(const Weight& w,
                                    std::uint32_t tile,
                                    std::uint32_t stage,
                                    unsigned lane,
                                    std::uint32_t to,
                                    std::uint32_t chunk_bytes,
                                    std::uint32_t barrier) {
  const auto* data = static_cast<const unsigned char*>(w.data);
  if constexpr (F::kIsDense) {
    const std::uint32_t at = stage * P::kWeightBytes, row_bytes = w.k * 2;
    const std::uint32_t n_bytes = at < row_bytes ? min(P::kWeightBytes, row_bytes - at) : 0;
    const std::uint32_t output = min(tile * kTileRows + lane, w.n_out - 1);
    if (lane == 0) barrier_expect(barrier, kTileRows * n_bytes);
    if (lane < kTileRows)
      copy_run(to + lane * P::kWeightStride, data + std::size_t{output} * row_bytes + at, n_bytes,
               P::kWeightBytes, barrier);
  } else {
    const std::uint32_t n_chunks = chunks_of(w.k), first = stage * P::kChunks;
    const unsigned char* from = data + (std::size_t{tile} * n_chunks + first) * w.chunk_bytes;
    if (w.chunk_bytes == chunk_bytes && first + P::kChunks <= n_chunks) {
      if (lane > 0) return;
      barrier_expect(barrier, P::kChunks * chunk_bytes);
      copy_bulk(to, from, P::kChunks * chunk_bytes, barrier);
      return;
    }
    const std::uint32_t n_there = first < n_chunks ? min(P::kChunks, n_chunks - first) : 0;
    if (lane == 0) barrier_expect(barrier, n_there * w.chunk_bytes);
    if (lane < P::kChunks)
      copy_run(to + lane * chunk_bytes, from + lane * w.chunk_bytes,
               lane < n_there ? w.chunk_bytes : 0, chunk_bytes, barrier);
  }
}

// A stage's columns of x, by one warp: rows past the last as zeros.
template <class P, bool kIsGrouped>
__device__ inline void load_x(const ProductArgs& p,
                              const Part& part,
                              std::uint32_t stage,
                              unsigned lane,
                              std::uint32_t to,
                              std::uint32_t barrier) {
  constexpr unsigned kElement = P::kIsF32 ? 4 : 2;
  // Of a head, rows of bf16 go on with the next head's columns, where weights are zeros.
  const std::uint32_t row_bytes = (P::kIsF32 ? part.w.n_in : part.w.k) * kElement;
  const std::uint32_t at = stage * P::kXBytes;
  const std::uint32_t n_bytes = at < row_bytes ? min(P::kXBytes, row_bytes - at) : 0;
  const auto* x = static_cast<const unsigned char*>(p.x) + std::size_t{part.x_column} * kElement + at;
  if (lane == 0) barrier_expect(barrier, part.n_rows * n_bytes);
  for (unsigned row = lane; row < (P::kIsF32 ? part.n_rows : P::kRows); row += 32) {
    const bool is_there = row < part.n_rows;
    const unsigned char* from =
        x + (is_there ? x_row<kIsGrouped>(p, part.first + row) * p.x_stride * kElement : 0);
    copy_run(to + row * P::kXStride, from, is_there ? n_bytes : 0, P::kXBytes, barrier);
  }
}

// The weights of one thread, chunk after chunk.
template <class F, class P>
struct WeightOperand {
  static constexpr unsigned kWords = F::kCode == Code::nibble ? 2 : 4;
  unsigned lane;
  float offset;
  unsigned group_shift;
  const unsigned char* at;  // the chunk in shared memory
  RowScales scales;
  uint4 words[kWords];

  __device__ void begin_chunk(const unsigned char* chunk) {
    at = chunk;
    if constexpr (!F::kIsDense) {
#pragma unroll
      for (unsigned i = 0; i < kWords; ++i)
        words[i] = reinterpret_cast<const uint4*>(chunk)[i * 32 + lane];
    }
  }

  // Steps come in order; `step` is known at compile time.
  __device__ void load(unsigned step, std::uint32_t* a) {
    if constexpr (F::kIsDense) {
      const unsigned row = lane % 16, piece = 2 * step + lane / 16;
      ldmatrix_x4(a, shared_address(at) + row * P::kWeightStride + piece * 16);
    } else {
      if (step % F::kScaleSteps == 0)
        load_scales<F>(scales,
                       at + codes_bytes(F::kCode) +
                           (step * 16 >> group_shift) * (kTileRows * F::kRowBytes),
                       lane);
      if constexpr (F::kCode == Code::nibble) {
        const uint4 four = words[step / 4];
        const std::uint32_t word = step % 4 == 0   ? four.x
                                   : step % 4 == 1 ? four.y
                                   : step % 4 == 2 ? four.z
                                                   : four.w;
        if constexpr (F::kIsPacked) {
          decode_nibbles_bf16(word, scales, a);
        } else {
          decode_nibbles<F::kHasBias>(word, scales, offset, a);
        }
      } else {
        const uint4 two = words[step / 2];
        decode_bytes<F::kHasBias>(step % 2 ? two.z : two.x, step % 2 ? two.w : two.y, scales,
                                  offset, a);
      }
    }
  }
};

// x of one thread as operand B of a step, all tiles of rows.
template <class P, int kNt>
struct XOperand {
  unsigned lane;
  bool has_row;             // f32
  const unsigned char* at;  // the chunk's columns, f32: of the thread's row

  __device__ void load(unsigned step, std::uint32_t* b) const {
    if constexpr (kNt == 1) {
      const auto* row = reinterpret_cast<const float*>(at) + step * 16 + 2 * (lane % 4);
      const float2 low = *reinterpret_cast<const float2*>(row);
      const float2 high = *reinterpret_cast<const float2*>(row + 8);
      b[0] = has_row ? pack_bf16(low.x, low.y) : 0;
      b[1] = has_row ? pack_bf16(high.x, high.y) : 0;
    } else {
#pragma unroll
      for (int nt = 0; nt < kNt; nt += 2) {
        const unsigned row = nt * 8 + lane % 8 + lane / 16 * 8, piece = 2 * step + lane / 8 % 2;
        ldmatrix_x4(b + 2 * nt, shared_address(at) + row * P::kXStride + piece * 16);
      }
    }
  }
};

template <int kNt>
__device__ inline void store(const ProductArgs& p,
                             const Part& part,
                             std::uint32_t tile,
                             unsigned lane,
                             const float (&sums)[kNt][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t output = tile * kTileRows + lane / 4 + i / 2 * 8;
    if (output >= part.w.n_out) continue;
    const float bias = part.bias ? part.bias[output] : 0.0f;
#pragma unroll
    for (int nt = 0; nt < kNt; ++nt) {
      const std::uint32_t row = nt * 8 + lane % 4 * 2 + i % 2;
      if (row < part.n_rows)
        p.out[(part.first + row) * p.out_stride + part.out_column + output] =
            part.bias ? __fadd_rn(sums[nt][i], bias) : sums[nt][i];
    }
  }
}

template <class F, int kNt, bool kIsGrouped>
__global__ void __launch_bounds__(128) product_kernel(const __grid_constant__ ProductArgs p) {
  using P = Plan<F, kNt>;
  extern __shared__ __align__(128) unsigned char shared[];
  const Part part = part_of_block<kIsGrouped, P::kRows>(p);
  if (kIsGrouped && part.n_rows == 0) return;
  if (kIsGrouped && !F::kIsDense && part.w.scale != F::kScale) return;  // another launch's
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = blockDim.x / 32;
  const std::uint32_t n_tiles = (part.w.n_out + kTileRows - 1) / kTileRows;
  const std::uint32_t tile = min(blockIdx.x * n_warps + warp, n_tiles - 1);
  const std::uint32_t n_stages = (chunks_of(part.w.k) + P::kChunks - 1) / P::kChunks;
  const std::uint32_t tile_bytes = P::tile_bytes(p.chunk_bytes);
  const std::uint32_t x_rows = !P::kIsF32 || kIsGrouped ? P::kRows : min(p.n_rows, P::kRows);
  const std::uint32_t slot_bytes = n_warps * tile_bytes + x_rows * P::kXStride;
  const std::uint32_t barriers = shared_address(shared), ring = barriers + kRingAt;

  if (threadIdx.x == 0) {
    for (unsigned i = 0; i < p.n_slots; ++i) barrier_init(barriers + 8 * i, n_warps + 1);
    barriers_are_initialised();
  }
  __syncthreads();
  const auto load = [&](std::uint32_t stage, std::uint32_t slot) {
    const std::uint32_t to = ring + slot * slot_bytes, barrier = barriers + 8 * slot;
    load_weights<F, P>(part.w, tile, stage, lane, to + warp * tile_bytes, p.chunk_bytes, barrier);
    if (warp == n_warps - 1)
      load_x<P, kIsGrouped>(p, part, stage, lane, to + n_warps * tile_bytes, barrier);
  };
  for (std::uint32_t s = 0; s + 1 < p.n_slots && s < n_stages; ++s) load(s, s);

  WeightOperand<F, P> weights{lane, static_cast<float>(part.w.offset),
                              31u - static_cast<unsigned>(__clz(static_cast<int>(part.w.group)))};
  XOperand<P, kNt> x{lane, lane / 4 < part.n_rows, nullptr};
  const std::uint32_t x_at =
      n_warps * tile_bytes + (P::kIsF32 && x.has_row ? lane / 4 * P::kXStride : 0);
  std::uint32_t slot = 0, free_slot = p.n_slots - 1;
  unsigned parity = 0;
  const unsigned char* at = shared;
  // Starts the copies of a stage that takes the place of the one before, everyone having its
  // operands in registers, and waits for this one's.
  const auto begin_stage = [&](std::uint32_t stage) {
    __syncthreads();
    if (stage + p.n_slots - 1 < n_stages) load(stage + p.n_slots - 1, free_slot);
    if (stage < n_stages) barrier_wait(barriers + 8 * slot, parity);
    at = shared + kRingAt + slot * slot_bytes;
    free_slot = slot;
    if (++slot == p.n_slots) {
      slot = 0;
      parity ^= 1;
    }
  };
  const auto begin_chunk = [&](unsigned c) {
    weights.begin_chunk(at + warp * tile_bytes + c * (F::kIsDense ? kChunkK * 2 : p.chunk_bytes));
    x.at = at + x_at + c * kChunkK * 4;
  };

  std::uint32_t a[P::kRing][4], b[P::kRing][2 * kNt];
  float sums[kNt][4] = {};
  begin_stage(0);
  begin_chunk(0);
#pragma unroll
  for (unsigned step = 0; step < P::kAhead; ++step) {
    weights.load(step, a[step]);
    x.load(step, b[step]);
  }
  for (std::uint32_t s = 0; s < n_stages; ++s) {
#pragma unroll
    for (unsigned step = 0; step < P::kChunks * kSteps; ++step) {
      const unsigned next = step + P::kAhead;
      if (next == P::kChunks * kSteps) begin_stage(s + 1);  // past the last one: read, never used
      if (next % kSteps == 0) begin_chunk(next / kSteps % P::kChunks);
      weights.load(next % kSteps, a[next % P::kRing]);
      x.load(next % kSteps, b[next % P::kRing]);
#pragma unroll
      for (int nt = 0; nt < kNt; ++nt)
        mma_bf16(sums[nt], a[step % P::kRing], b[step % P::kRing][2 * nt],
                 b[step % P::kRing][2 * nt + 1]);
    }
  }
  if (blockIdx.x * n_warps + warp < n_tiles) store<kNt>(p, part, tile, lane, sums);
}

// blocks: of one column.
inline dim3 grid_of(const ProductArgs& p, unsigned blocks, unsigned rows_of_column) {
  const unsigned columns = (p.n_rows + rows_of_column - 1) / rows_of_column;
  if (!p.grouped.weights) return dim3(blocks, columns);
  return dim3(blocks, p.grouped.n_items, p.grouped.items ? 1 : columns);
}

// Tiles to a block: more share x, fewer spread over more multiprocessors. Slots: as many as fit
// when all blocks that come to one multiprocessor are there at once, but at least three.
template <class F, int kNt, bool kIsGrouped>
void launch_plan(Queue& queue, ProductArgs p) {
  using P = Plan<F, kNt>;
  constexpr unsigned kLeastSlots = 3, kMostBlocks = 16;
  const unsigned n_tiles = (p.weight.n_out + kTileRows - 1) / kTileRows;
  const unsigned x_rows = !P::kIsF32 || kIsGrouped || p.n_rows > P::kRows ? P::kRows : p.n_rows;
  const dim3 all = grid_of(p, n_tiles, P::kRows);
  if (p.n_warps == 0)
    p.n_warps = !P::kIsF32 ? 4 : p.n_rows <= 2 ? 1 : all.x * all.y * all.z < 4 * p.n_sms ? 2 : 4;
  const unsigned slot_bytes = p.n_warps * P::tile_bytes(p.chunk_bytes) + x_rows * P::kXStride;
  const dim3 grid = grid_of(p, (n_tiles + p.n_warps - 1) / p.n_warps, P::kRows);
  const unsigned n_blocks = grid.x * grid.y * grid.z;
  unsigned of_sm = (n_blocks + p.n_sms - 1) / p.n_sms;
  if (of_sm > kMostBlocks) of_sm = kMostBlocks;
  const auto slots_of = [&](unsigned n) {
    return (kSharedOfSm / n - 1024 - kRingAt) / slot_bytes;  // 1 KiB a block is the system's
  };
  while (of_sm > 1 && slots_of(of_sm) < kLeastSlots) --of_sm;
  if (p.n_slots == 0) p.n_slots = slots_of(of_sm) < kMaxSlots ? slots_of(of_sm) : kMaxSlots;
  queue.launch(&product_kernel<F, kNt, kIsGrouped>, grid, 32 * p.n_warps,
               kRingAt + std::size_t{p.n_slots} * slot_bytes, p);
}

template <Code kCode, ScaleKind kScale, bool kHasBias>
void launch_format(Queue& queue, const ProductArgs& p) {
  using F = Format<kCode, kScale, kHasBias>;
  if (p.grouped.weights) {
    return p.x_is_bf16 ? launch_plan<F, 8, true>(queue, p) : launch_plan<F, 1, true>(queue, p);
  }
  if (!p.x_is_bf16) return launch_plan<F, 1, false>(queue, p);
  if (p.n_rows <= 16) return launch_plan<F, 2, false>(queue, p);
  if (p.n_rows <= 32) return launch_plan<F, 4, false>(queue, p);
  launch_plan<F, 8, false>(queue, p);
}

// Formats that a code comes in.
template <Code kCode>
void launch_code(Queue& queue, const ProductArgs& p) {
  const bool has_bias = p.weight.has_bias;
  switch (p.weight.scale) {
    case ScaleKind::f32:
      return has_bias ? launch_format<kCode, ScaleKind::f32, true>(queue, p)
                      : launch_format<kCode, ScaleKind::f32, false>(queue, p);
    case ScaleKind::f16:
      return has_bias ? launch_format<kCode, ScaleKind::f16, true>(queue, p)
                      : launch_format<kCode, ScaleKind::f16, false>(queue, p);
    case ScaleKind::bf16:
      return launch_format<kCode, ScaleKind::bf16, true>(queue, p);
  }
}

// One file each.
void launch_dense(Queue& queue, const ProductArgs& args);
void launch_nibbles(Queue& queue, const ProductArgs& args);
void launch_bytes(Queue& queue, const ProductArgs& args);

}  // namespace kvasir::backend::cuda
