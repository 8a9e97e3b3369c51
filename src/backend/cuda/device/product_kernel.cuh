// A warp owns a tile of 16 outputs and walks K once. Weights and x come in stages of one or two
// chunks through a ring in shared memory, many in flight; operands go to registers a few steps
// before they are multiplied, across the borders of stages too, so that the chain of products waits
// for nothing but itself.
#pragma once

#include "backend/cuda/device/decode.cuh"
#include "backend/cuda/device/mma.cuh"
#include "backend/cuda/device/product.h"
#include "backend/cuda/device/rows.h"

namespace kvasir::backend::cuda {

constexpr unsigned kMaxSlots = 12;                // of a ring
constexpr unsigned kRowsAt = 128, kRingAt = 640;  // bytes: barriers, addresses of rows, slots
constexpr unsigned kSharedOfSm = 227u << 10;

// How x comes: a few f32 rows, bf16 tiles of all rows, bf16 rows one by one.
enum class Input { f32, tiles, rows };

// kNt: tiles of 8 rows.
template <class F, int kNt, Input kInput>
struct Plan {
  static constexpr bool kIsF32 = kInput == Input::f32;
  static constexpr unsigned kChunks = kNt == 1 ? 2 : 1;  // of K in one stage
  static constexpr unsigned kRows = 8 * kNt;
  // Bytes of one row in a stage, and so many more that operands are read from different banks.
  static constexpr unsigned kXBytes = (kIsF32 ? kChunks * 4 : 2) * kChunkK;
  static constexpr unsigned kXStride = kIsF32 ? kXBytes + 32 : 2 * kTiledRow;
  static constexpr unsigned kXChunk = kIsF32 ? 4 * kChunkK : kRows * kXStride;  // to the next chunk
  static constexpr unsigned kWeightBytes = kChunks * kChunkK * 2;               // dense
  static constexpr unsigned kWeightStride = kWeightBytes + 16;
  // Operands in registers: of the steps at hand and the next ones.
  static constexpr unsigned kRing = kNt <= 2 ? 4 : 2, kAhead = kRing - 1;

  __host__ __device__ static unsigned tile_bytes(unsigned chunk_bytes) {
    return F::kIsDense ? kTileRows * kWeightStride : kChunks * chunk_bytes;
  }
  __host__ __device__ static unsigned x_bytes(unsigned n_rows) {
    return kIsF32 ? n_rows * kXStride : kChunks * kXChunk;
  }
  // At a slot's barrier.
  __device__ static unsigned n_arrivals(unsigned n_warps) {
    constexpr unsigned kOfWarp =
        (F::kIsDense ? 0 : 1) + (F::kIsDense || kInput == Input::rows ? 32 : 0);
    return n_warps * kOfWarp + (kInput == Input::rows ? 0 : 1);
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

// A stage's codes and scales of a tile, by its warp.
template <class P>
__device__ inline void load_codes(const Weight& w,
                                  std::uint32_t tile,
                                  std::uint32_t stage,
                                  unsigned lane,
                                  std::uint32_t to,
                                  std::uint32_t chunk_bytes,
                                  std::uint32_t barrier) {
  const std::uint32_t n_chunks = chunks_of(w.k), first = stage * P::kChunks;
  const unsigned char* from = static_cast<const unsigned char*>(w.data) +
                              (std::size_t{tile} * n_chunks + first) * w.chunk_bytes;
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

// A stage's columns of f32 x, by one warp.
template <class P, bool kIsGrouped>
__device__ inline void load_x_f32(const ProductArgs& p,
                                  const Part& part,
                                  std::uint32_t stage,
                                  unsigned lane,
                                  std::uint32_t to,
                                  std::uint32_t barrier) {
  const std::uint32_t row_bytes = part.w.n_in * 4, at = stage * P::kXBytes;
  const std::uint32_t n_bytes = at < row_bytes ? min(P::kXBytes, row_bytes - at) : 0;
  const float* x = static_cast<const float*>(p.x) + part.x_column;
  if (lane == 0) barrier_expect(barrier, part.n_rows * n_bytes);
  if (lane < part.n_rows)
    copy_run(to + lane * P::kXStride,
             x + x_row<kIsGrouped>(p, part.first + lane) * p.x_stride + at / 4, n_bytes, P::kXBytes,
             barrier);
}

// Of tiles, by one thread.
template <class P>
__device__ inline void load_x_tile(const ProductArgs& p,
                                   const Part& part,
                                   std::uint32_t stage,
                                   std::uint32_t to,
                                   std::uint32_t barrier) {
  const std::size_t chunk = std::size_t{part.first / P::kRows} * tiled_chunks(part.w.k);
  const auto* x = static_cast<const unsigned char*>(p.x);
  barrier_expect(barrier, P::kChunks * P::kXChunk);
  copy_bulk(to, x + (chunk + stage * P::kChunks) * P::kXChunk, P::kChunks * P::kXChunk, barrier);
}

// Of bf16 rows whose addresses are in shared memory, by the block; no address: zeros. Of a head, they
// go on with the next head's columns, where weights are zeros.
template <class P>
__device__ inline void load_x_rows(const Part& part,
                                   std::uint32_t stage,
                                   const unsigned char* const* rows,
                                   std::uint32_t to) {
  const unsigned piece = threadIdx.x % 16;
  const std::uint32_t at = stage * P::kXBytes + piece * 16;
  for (unsigned row = threadIdx.x / 16; row < P::kRows; row += blockDim.x / 16) {
    const bool is_there = rows[row] && at < part.w.k * 2;
    copy16(to + row * P::kXStride + piece * 16, is_there ? rows[row] + at : part.w.data,
           is_there ? 16 : 0);
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
    if constexpr (P::kIsF32) {
      const auto* row = reinterpret_cast<const float*>(at) + step * 16 + 2 * (lane % 4);
      const float2 low = *reinterpret_cast<const float2*>(row);
      const float2 high = *reinterpret_cast<const float2*>(row + 8);
      b[0] = has_row ? pack_bf16(low.x, low.y) : 0;
      b[1] = has_row ? pack_bf16(high.x, high.y) : 0;
    } else if constexpr (kNt == 1) {
      const unsigned piece = 2 * step + lane / 8 % 2;
      ldmatrix_x2(b, shared_address(at) + lane % 8 * P::kXStride + piece * 16);
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

template <class F, int kNt, Input kInput, bool kIsGrouped>
__global__ void __launch_bounds__(128) product_kernel(const __grid_constant__ ProductArgs p) {
  using P = Plan<F, kNt, kInput>;
  extern __shared__ __align__(128) unsigned char shared[];
  const Part part = part_of_block<kIsGrouped, P::kRows>(p);
  if (kIsGrouped && part.n_rows == 0) return;
  if (kIsGrouped && !F::kIsDense && part.w.scale != F::kScale) return;  // another launch's
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = blockDim.x / 32;
  const std::uint32_t n_tiles = (part.w.n_out + kTileRows - 1) / kTileRows;
  const std::uint32_t tile = min(blockIdx.x * n_warps + warp, n_tiles - 1);
  const std::uint32_t n_stages = (chunks_of(part.w.k) + P::kChunks - 1) / P::kChunks;
  const std::uint32_t tile_bytes = P::tile_bytes(p.chunk_bytes);
  const std::uint32_t slot_bytes =
      n_warps * tile_bytes + P::x_bytes(kIsGrouped ? P::kRows : min(p.n_rows, P::kRows));
  const std::uint32_t barriers = shared_address(shared), ring = barriers + kRingAt;
  auto* const rows = reinterpret_cast<const unsigned char**>(shared + kRowsAt);

  if (threadIdx.x == 0) {
    for (unsigned i = 0; i < p.n_slots; ++i) barrier_init(barriers + 8 * i, P::n_arrivals(n_warps));
    barriers_are_initialised();
  }
  if (kInput == Input::rows && threadIdx.x < P::kRows) {
    const std::size_t row = x_row<kIsGrouped>(p, part.first + threadIdx.x % part.n_rows);
    rows[threadIdx.x] =
        threadIdx.x < part.n_rows
            ? static_cast<const unsigned char*>(p.x) + (row * p.x_stride + part.x_column) * 2
            : nullptr;
  }
  __syncthreads();
  const auto load = [&](std::uint32_t stage, std::uint32_t slot) {
    const std::uint32_t to = ring + slot * slot_bytes, barrier = barriers + 8 * slot;
    const std::uint32_t own = to + warp * tile_bytes, x_to = to + n_warps * tile_bytes;
    if constexpr (F::kIsDense) {
      load_dense<P>(part.w, tile, stage, lane, own);
    } else {
      load_codes<P>(part.w, tile, stage, lane, own, p.chunk_bytes, barrier);
    }
    if constexpr (kInput == Input::rows) load_x_rows<P>(part, stage, rows, x_to);
    if constexpr (F::kIsDense || kInput == Input::rows) barrier_arrive_after_copies(barrier);
    if constexpr (kInput == Input::f32) {
      if (warp == n_warps - 1) load_x_f32<P, kIsGrouped>(p, part, stage, lane, x_to, barrier);
    } else if constexpr (kInput == Input::tiles) {
      if (threadIdx.x == 32 * (n_warps - 1)) load_x_tile<P>(p, part, stage, x_to, barrier);
    }
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
    x.at = at + x_at + c * P::kXChunk;
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
template <class F, int kNt, Input kInput, bool kIsGrouped>
void launch_plan(Queue& queue, ProductArgs p) {
  using P = Plan<F, kNt, kInput>;
  constexpr unsigned kLeastSlots = 3, kMostBlocks = 16;
  const unsigned n_tiles = (p.weight.n_out + kTileRows - 1) / kTileRows;
  const dim3 all = grid_of(p, n_tiles, P::kRows);
  const bool is_many = all.x * all.y * all.z >= 4 * p.n_sms;
  if (p.n_warps == 0)
    p.n_warps = kNt > 1 ? 4 : !P::kIsF32 ? (is_many ? 4 : 2) : F::kIsDense || !is_many ? 1 : 4;
  const unsigned slot_bytes =
      p.n_warps * P::tile_bytes(p.chunk_bytes) +
      P::x_bytes(kIsGrouped || p.n_rows > P::kRows ? P::kRows : p.n_rows);
  const dim3 grid = grid_of(p, (n_tiles + p.n_warps - 1) / p.n_warps, P::kRows);
  unsigned of_sm = (grid.x * grid.y * grid.z + p.n_sms - 1) / p.n_sms;
  if (of_sm > kMostBlocks) of_sm = kMostBlocks;
  const auto slots_of = [&](unsigned n) {
    return (kSharedOfSm / n - 1024 - kRingAt) / slot_bytes;  // 1 KiB a block is the system's
  };
  while (of_sm > 1 && slots_of(of_sm) < kLeastSlots) --of_sm;
  if (p.n_slots == 0) p.n_slots = slots_of(of_sm) < kMaxSlots ? slots_of(of_sm) : kMaxSlots;
  queue.launch(&product_kernel<F, kNt, kInput, kIsGrouped>, grid, 32 * p.n_warps,
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
