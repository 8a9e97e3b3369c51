// A warp owns a tile of 16 outputs and walks K once. Other warps bring its weights, and x, in
// stages of one or two chunks through a ring in shared memory, many in flight; operands go to
// registers a few steps before they are multiplied, across the borders of stages too, so that the
// chain of products waits for nothing but itself.
#pragma once

#include "backend/cuda/device/chain.cuh"
#include "backend/cuda/device/decode.cuh"
#include "backend/cuda/device/mma.cuh"
#include "backend/cuda/device/product.h"
#include "backend/cuda/device/rows.h"

namespace kvasir::backend::cuda {

// Shared memory: barriers of slots that are full, that are empty, addresses of rows, slots.
constexpr unsigned kMaxSlots = 12, kEmptyAt = 8 * kMaxSlots, kRowsAt = 256, kRingAt = 768;
constexpr unsigned kSharedOfSm = 227u << 10;

// How x comes: a few f32 rows, rounded on their way; bf16 tiles of all rows; bf16 rows one by one.
enum class Input { f32, tiles, rows };

// kNt: tiles of 8 rows.
template <class F, int kNt, Input kInput>
struct Plan {
  static constexpr Input kIn = kInput;
  static constexpr unsigned kChunks = kNt == 1 ? 2 : 1;  // of K in one stage
  static constexpr unsigned kRows = 8 * kNt;
  // Bytes of one row in a stage, and so many more that operands are read from different banks.
  static constexpr unsigned kXStride = 2 * kTiledRow, kXChunk = kRows * kXStride;
  static constexpr unsigned kWeightBytes = kChunks * kChunkK * 2;  // dense
  static constexpr unsigned kWeightStride = kWeightBytes + 16;
  // Operands in registers: of the steps at hand and the next ones.
  static constexpr unsigned kRing = kNt <= 2 ? 4 : 2, kAhead = kRing - 1;

  __host__ __device__ static unsigned tile_bytes(unsigned chunk_bytes) {
    return F::kIsDense ? kTileRows * kWeightStride : kChunks * chunk_bytes;
  }
  __host__ __device__ static unsigned slot_bytes(unsigned n_tiles, unsigned chunk_bytes) {
    return n_tiles * tile_bytes(chunk_bytes) + kChunks * kXChunk;
  }
  // Until a slot is full.
  __device__ static unsigned n_arrivals(unsigned n_tiles) {
    return n_tiles * (F::kIsDense ? 32 : 1) + (kInput == Input::rows ? 32 : 1);
  }
};

// Slots of the ring in turn.
struct Turn {
  unsigned n_slots, slot = 0, parity = 0;
  __device__ void next() {
    if (++slot < n_slots) return;
    slot = 0;
    parity ^= 1;
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

// A stage's dense weights of a tile, by its warp, 16 bytes a thread: 32 or 16 of them are a row.
template <class P>
__device__ inline void load_dense(
    const Weight& w, std::uint32_t tile, std::uint32_t stage, unsigned lane, std::uint32_t to) {
  constexpr unsigned kPieces = P::kWeightBytes / 16, kAtOnce = 32 / kPieces;
  const std::uint32_t row_bytes = w.k * 2, at = stage * P::kWeightBytes + lane % kPieces * 16;
  const unsigned first = lane / kPieces;
  const unsigned char* from = static_cast<const unsigned char*>(w.data) +
                              std::size_t{tile * kTileRows + first} * row_bytes + at;
  to += first * P::kWeightStride + lane % kPieces * 16;
  if ((stage + 1) * P::kWeightBytes <= row_bytes && (tile + 1) * kTileRows <= w.n_out) {
#pragma unroll
    for (unsigned j = 0; j < kTileRows / kAtOnce; ++j)
      copy16(to + j * kAtOnce * P::kWeightStride, from + std::size_t{j} * (kAtOnce * row_bytes));
    return;
  }
  for (unsigned j = 0; j < kTileRows / kAtOnce; ++j) {  // zeros past K's end and the last output
    const bool is_there = at < row_bytes && tile * kTileRows + first + j * kAtOnce < w.n_out;
    copy16(to + j * kAtOnce * P::kWeightStride,
           is_there ? from + std::size_t{j} * (kAtOnce * row_bytes) : w.data, is_there ? 16 : 0);
  }
}

// A stage's codes and scales of a tile, by one thread; zeros past K's end.
template <class P>
__device__ inline void load_codes(const Weight& w,
                                  std::uint32_t tile,
                                  std::uint32_t stage,
                                  std::uint32_t to,
                                  std::uint32_t chunk_bytes,
                                  std::uint32_t barrier) {
  const std::uint32_t n_chunks = chunks_of(w.k), first = stage * P::kChunks;
  const unsigned char* from = static_cast<const unsigned char*>(w.data) +
                              (std::size_t{tile} * n_chunks + first) * w.chunk_bytes;
  if (w.chunk_bytes == chunk_bytes && first + P::kChunks <= n_chunks) {
    copy_run(to, from, P::kChunks * chunk_bytes, barrier);
    return barrier_arrive_after_runs(barrier, P::kChunks * chunk_bytes);
  }
  const std::uint32_t n_there = min(P::kChunks, n_chunks - first);
  for (std::uint32_t c = n_there; c < P::kChunks; ++c) {
    for (std::uint32_t i = 0; i < chunk_bytes; i += 16) zero16(to + c * chunk_bytes + i);
  }
  for (std::uint32_t c = 0; c < n_there; ++c)
    copy_run(to + c * chunk_bytes, from + c * w.chunk_bytes, w.chunk_bytes, barrier);
  barrier_arrive_after_runs(barrier, n_there * w.chunk_bytes);
}

// The warp that brings a tile's weights.
template <class F, class P>
__device__ inline void bring_weights(const ProductArgs& p,
                                     const Part& part,
                                     std::uint32_t tile,
                                     std::uint32_t n_stages,
                                     std::uint32_t barriers,
                                     std::uint32_t own,  // in the first slot
                                     std::uint32_t slot_bytes) {
  const unsigned lane = threadIdx.x % 32;
  if (!F::kIsDense && lane > 0) return;
  Turn turn{p.n_slots};
  for (std::uint32_t stage = 0; stage < n_stages; ++stage, turn.next()) {
    const std::uint32_t full = barriers + 8 * turn.slot, to = own + turn.slot * slot_bytes;
    barrier_wait(full + kEmptyAt, turn.parity ^ 1);
    if constexpr (F::kIsDense) {
      load_dense<P>(part.w, tile, stage, lane, to);
      barrier_arrive_after_copies(full);
    } else {
      load_codes<P>(part.w, tile, stage, to, p.chunk_bytes, full);
    }
  }
  copies_wait();
}

// The warp that brings tiles of x.
template <class P>
__device__ inline void bring_tiles(const ProductArgs& p,
                                   const Part& part,
                                   std::uint32_t n_stages,
                                   std::uint32_t barriers,
                                   std::uint32_t own,
                                   std::uint32_t slot_bytes) {
  if (threadIdx.x % 32 > 0) return;
  constexpr unsigned kBytes = P::kChunks * P::kXChunk;
  const unsigned char* from =
      static_cast<const unsigned char*>(p.x) +
      std::size_t{part.first / P::kRows} * tiled_chunks(part.w.k) * P::kXChunk;
  Turn turn{p.n_slots};
  for (std::uint32_t stage = 0; stage < n_stages; ++stage, turn.next(), from += kBytes) {
    const std::uint32_t full = barriers + 8 * turn.slot;
    barrier_wait(full + kEmptyAt, turn.parity ^ 1);
    copy_run(own + turn.slot * slot_bytes, from, kBytes, full);
    barrier_arrive_after_runs(full, kBytes);
  }
  copies_wait();
}

// The warp that brings bf16 rows; addresses of rows are in shared memory, null past the last. Of a
// head, rows go on with the next head's columns, where weights are zeros.
template <class P>
__device__ inline void bring_rows(const ProductArgs& p,
                                  const Part& part,
                                  std::uint32_t n_stages,
                                  std::uint32_t barriers,
                                  std::uint32_t own,
                                  std::uint32_t slot_bytes,
                                  const unsigned char* const* rows) {
  const unsigned lane = threadIdx.x % 32;
  Turn turn{p.n_slots};
  for (std::uint32_t stage = 0; stage < n_stages; ++stage, turn.next()) {
    const std::uint32_t full = barriers + 8 * turn.slot;
    const std::uint32_t to = own + turn.slot * slot_bytes + lane % 16 * 16;
    const std::uint32_t at = stage * kChunkK * 2 + lane % 16 * 16;
    barrier_wait(full + kEmptyAt, turn.parity ^ 1);
    for (unsigned row = lane / 16; row < P::kRows; row += 2) {
      const bool is_there = rows[row] && at < part.w.k * 2;
      copy16(to + row * P::kXStride, is_there ? rows[row] + at : part.w.data, is_there ? 16 : 0);
    }
    barrier_arrive_after_copies(full);
  }
  copies_wait();
}

// The warp that brings f32 rows: a row's 256 columns of a stage at a time, four such on their way.
template <class P, bool kIsGrouped>
__device__ inline void bring_f32(const ProductArgs& p,
                                 const Part& part,
                                 std::uint32_t n_stages,
                                 std::uint32_t barriers,
                                 std::uint32_t own,
                                 std::uint32_t slot_bytes) {
  constexpr unsigned kFlying = 4;
  const unsigned lane = threadIdx.x % 32;
  const std::uint32_t n_items = n_stages * part.n_rows;
  float4 flying[kFlying][2];
  std::uint32_t next_row = 0, next_k = lane * 8;
  const auto fetch = [&](float4* to) {
    const float* row = static_cast<const float*>(p.x) +
                       x_row<kIsGrouped>(p, part.first + next_row) * p.x_stride + part.x_column;
    for (unsigned h = 0; h < 2; ++h) {
      const std::uint32_t k = next_k + 4 * h;
      to[h] = k < part.w.n_in ? *reinterpret_cast<const float4*>(row + k) : float4{};
    }
    if (++next_row < part.n_rows) return;
    next_row = 0;
    next_k += P::kChunks * kChunkK;
  };
#pragma unroll
  for (unsigned f = 0; f < kFlying; ++f) fetch(flying[f]);
  Turn turn{p.n_slots};
  std::uint32_t row = 0;
  for (std::uint32_t item = 0; item < n_items; item += kFlying) {
#pragma unroll
    for (unsigned f = 0; f < kFlying; ++f) {
      if (item + f >= n_items) break;
      const std::uint32_t full = barriers + 8 * turn.slot;
      if (row == 0) barrier_wait(full + kEmptyAt, turn.parity ^ 1);
      const float4 a = flying[f][0], b = flying[f][1];
      store16(own + turn.slot * slot_bytes + lane / 16 * P::kXChunk + row * P::kXStride +
                  lane % 16 * 16,
              {pack_bf16(a.x, a.y), pack_bf16(a.z, a.w), pack_bf16(b.x, b.y), pack_bf16(b.z, b.w)});
      fetch(flying[f]);
      if (++row < part.n_rows) continue;
      row = 0;
      __syncwarp();
      if (lane == 0) barrier_arrive(full);
      turn.next();
    }
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
        load_scales<F>(
            scales,
            at + codes_bytes(F::kCode) + (step * 16 >> group_shift) * (kTileRows * F::kRowBytes),
            lane, offset);
      if constexpr (F::kCode == Code::nibble) {
        const uint4 four = words[step / 4];
        const std::uint32_t word = step % 4 == 0   ? four.x
                                   : step % 4 == 1 ? four.y
                                   : step % 4 == 2 ? four.z
                                                   : four.w;
        decode_nibbles<F>(word, scales, offset, a);
      } else {
        const uint4 two = words[step / 2];
        decode_bytes<F>(step % 2 ? uint2{two.z, two.w} : uint2{two.x, two.y}, scales, offset, a);
      }
    }
  }
};

// x of one thread as operand B of a step, all tiles of rows. at: the chunk's columns. Of f32 rows
// only n_rows are there: the last one stands for others, whose results nobody stores.
template <class P, int kNt>
__device__ inline void load_x(const unsigned char* at,
                              unsigned step,
                              unsigned lane,
                              std::uint32_t n_rows,
                              std::uint32_t* b) {
  const unsigned piece = 2 * step + lane / 8 % 2;
  if constexpr (kNt == 1) {
    const unsigned row = P::kIn == Input::f32 ? min(lane % 8, n_rows - 1) : lane % 8;
    ldmatrix_x2(b, shared_address(at) + row * P::kXStride + piece * 16);
  } else {
#pragma unroll
    for (int nt = 0; nt < kNt; nt += 2) {
      const unsigned row = nt * 8 + lane % 8 + lane / 16 * 8;
      ldmatrix_x4(b + 2 * nt, shared_address(at) + row * P::kXStride + piece * 16);
    }
  }
}

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

// The warp that multiplies a tile.
template <class F, class P, int kNt>
__device__ inline void multiply_tile(const ProductArgs& p,
                                     const Part& part,
                                     std::uint32_t n_stages,
                                     std::uint32_t barriers,
                                     const unsigned char* ring,
                                     std::uint32_t own,   // bytes into a slot
                                     std::uint32_t x_at,  // likewise
                                     std::uint32_t slot_bytes,
                                     float (&sums)[kNt][4]) {
  const unsigned lane = threadIdx.x % 32;
  WeightOperand<F, P> weights{lane, static_cast<float>(part.w.offset),
                              31u - static_cast<unsigned>(__clz(static_cast<int>(part.w.group)))};
  const unsigned char* at = ring;
  const unsigned char* x = nullptr;
  Turn turn{p.n_slots};
  std::uint32_t full_before = barriers;
  // Leaves the slot before, whose operands are in registers; behind the last one it is read again.
  const auto begin_stage = [&](std::uint32_t stage) {
    const std::uint32_t full = barriers + 8 * turn.slot;
    __syncwarp();
    if (stage > 0 && lane == 0) barrier_arrive(full_before + kEmptyAt);
    if (stage == n_stages) return;
    barrier_wait(full, turn.parity);
    at = ring + turn.slot * slot_bytes;
    full_before = full;
    turn.next();
  };
  const auto begin_chunk = [&](unsigned c) {
    weights.begin_chunk(at + own + c * (F::kIsDense ? kChunkK * 2 : p.chunk_bytes));
    x = at + x_at + c * P::kXChunk;
  };

  std::uint32_t a[P::kRing][4], b[P::kRing][2 * kNt];
  begin_stage(0);
  begin_chunk(0);
#pragma unroll
  for (unsigned step = 0; step < P::kAhead; ++step) {
    weights.load(step, a[step]);
    load_x<P, kNt>(x, step, lane, part.n_rows, b[step]);
  }
  for (std::uint32_t s = 0; s < n_stages; ++s) {
#pragma unroll
    for (unsigned step = 0; step < P::kChunks * kSteps; ++step) {
      const unsigned next = step + P::kAhead;
      if (next == P::kChunks * kSteps) begin_stage(s + 1);
      if (next % kSteps == 0) begin_chunk(next / kSteps % P::kChunks);
      weights.load(next % kSteps, a[next % P::kRing]);
      load_x<P, kNt>(x, next % kSteps, lane, part.n_rows, b[next % P::kRing]);
#pragma unroll
      for (int nt = 0; nt < kNt; ++nt)
        mma_bf16(sums[nt], a[step % P::kRing], b[step % P::kRing][2 * nt],
                 b[step % P::kRing][2 * nt + 1]);
    }
  }
}

// Warps: one a tile that multiplies, one a tile that brings its weights, one that brings x.
template <class F, int kNt, Input kInput, bool kIsGrouped>
__global__ void __launch_bounds__(288) product_kernel(const __grid_constant__ ProductArgs p) {
  using P = Plan<F, kNt, kInput>;
  extern __shared__ __align__(128) unsigned char shared[];
  if (threadIdx.x == 0) let_next_start();
  if (kIsGrouped) await_previous();  // items and slots are written by kernels
  const Part part = part_of_block<kIsGrouped, P::kRows>(p);
  if (kIsGrouped && part.n_rows == 0) return;
  if (kIsGrouped && !F::kIsDense && part.w.scale != F::kScale) return;  // another launch's
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const std::uint32_t n_tiles = (part.w.n_out + kTileRows - 1) / kTileRows;
  const std::uint32_t n_stages = (chunks_of(part.w.k) + P::kChunks - 1) / P::kChunks;
  const std::uint32_t tile_bytes = P::tile_bytes(p.chunk_bytes), x_at = p.n_warps * tile_bytes;
  const std::uint32_t slot_bytes = P::slot_bytes(p.n_warps, p.chunk_bytes);
  const std::uint32_t barriers = shared_address(shared), ring = barriers + kRingAt;
  auto* const rows = reinterpret_cast<const unsigned char**>(shared + kRowsAt);

  if (threadIdx.x == 0) {
    for (unsigned i = 0; i < p.n_slots; ++i) {
      barrier_init(barriers + 8 * i, P::n_arrivals(p.n_warps));
      barrier_init(barriers + kEmptyAt + 8 * i, p.n_warps);
    }
    barriers_are_initialised();
  }
  if (kInput == Input::rows && threadIdx.x < P::kRows) {
    const std::size_t row = x_row<kIsGrouped>(p, part.first + threadIdx.x % part.n_rows);
    rows[threadIdx.x] = threadIdx.x < part.n_rows ? static_cast<const unsigned char*>(p.x) +
                                                        (row * p.x_stride + part.x_column) * 2
                                                  : nullptr;
  }
  __syncthreads();
  if (warp == 2 * p.n_warps) {
    await_previous();
    if constexpr (kInput == Input::f32)
      bring_f32<P, kIsGrouped>(p, part, n_stages, barriers, ring + x_at, slot_bytes);
    if constexpr (kInput == Input::tiles)
      bring_tiles<P>(p, part, n_stages, barriers, ring + x_at, slot_bytes);
    if constexpr (kInput == Input::rows)
      bring_rows<P>(p, part, n_stages, barriers, ring + x_at, slot_bytes, rows);
    return;
  }
  const unsigned in_block = warp < p.n_warps ? warp : warp - p.n_warps;
  const std::uint32_t tile = min(blockIdx.x * p.n_warps + in_block, n_tiles - 1);
  if (warp >= p.n_warps)
    return bring_weights<F, P>(p, part, tile, n_stages, barriers, ring + in_block * tile_bytes,
                               slot_bytes);
  float sums[kNt][4] = {};
  multiply_tile<F, P, kNt>(p, part, n_stages, barriers, shared + kRingAt, warp * tile_bytes, x_at,
                           slot_bytes, sums);
  if (blockIdx.x * p.n_warps + warp < n_tiles) store<kNt>(p, part, tile, lane, sums);
}

// blocks: of one column.
inline dim3 grid_of(const ProductArgs& p, unsigned blocks, unsigned rows_of_column) {
  const unsigned columns = (p.n_rows + rows_of_column - 1) / rows_of_column;
  if (!p.grouped.weights) return dim3(blocks, columns);
  return dim3(blocks, p.grouped.n_items, p.grouped.items ? 1 : columns);
}

// Tiles to a block: more share x, fewer spread over more multiprocessors. Slots: as many as fit
// when all blocks that come to one multiprocessor are there at once, but at least three.
template <class F, int kNt, Input kInput, bool kIsGrouped>
void launch_plan(Queue& queue, ProductArgs p) {
  using P = Plan<F, kNt, kInput>;
  constexpr unsigned kLeastSlots = 3, kMostBlocks = 16;
  const unsigned n_tiles = (p.weight.n_out + kTileRows - 1) / kTileRows;
  const dim3 all = grid_of(p, n_tiles, P::kRows);
  const bool is_many = all.x * all.y * all.z >= 4 * p.n_sms;
  if (p.n_warps == 0) p.n_warps = is_many ? 4 : kNt > 1 ? 2 : 1;
  const unsigned slot_bytes = P::slot_bytes(p.n_warps, p.chunk_bytes);
  const dim3 grid = grid_of(p, (n_tiles + p.n_warps - 1) / p.n_warps, P::kRows);
  unsigned of_sm = (grid.x * grid.y * grid.z + p.n_sms - 1) / p.n_sms;
  if (of_sm > kMostBlocks) of_sm = kMostBlocks;
  const auto slots_of = [&](unsigned n) {
    return (kSharedOfSm / n - 1024 - kRingAt) / slot_bytes;  // 1 KiB a block is the system's
  };
  while (of_sm > 1 && slots_of(of_sm) < kLeastSlots) --of_sm;
  if (p.n_slots == 0) p.n_slots = slots_of(of_sm) < kMaxSlots ? slots_of(of_sm) : kMaxSlots;
  queue.launch_early(&product_kernel<F, kNt, kInput, kIsGrouped>, grid, 32 * (2 * p.n_warps + 1),
                     kRingAt + std::size_t{p.n_slots} * slot_bytes, p);
}

template <Code kCode, ScaleKind kScale, bool kHasBias>
void launch_format(Queue& queue, const ProductArgs& p) {
  using F = Format<kCode, kScale, kHasBias>;
  if (p.grouped.weights) {
    return p.x_is_bf16 ? launch_plan<F, 8, Input::rows, true>(queue, p)
                       : launch_plan<F, 1, Input::f32, true>(queue, p);
  }
  if (!p.x_is_bf16) return launch_plan<F, 1, Input::f32, false>(queue, p);
  switch (rows_of_tile(p.n_rows)) {
    case 8:
      return launch_plan<F, 1, Input::tiles, false>(queue, p);
    case 16:
      return launch_plan<F, 2, Input::tiles, false>(queue, p);
    case 32:
      return launch_plan<F, 4, Input::tiles, false>(queue, p);
    default:
      return launch_plan<F, 8, Input::tiles, false>(queue, p);
  }
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
