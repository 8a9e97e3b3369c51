// A warp owns a tile of 16 outputs and walks K once. Weights and x come in stages of one or two
// chunks through a ring in shared memory, many in flight; operands go to registers a few steps
// before they are multiplied, across the borders of stages too, so that the chain of products waits
// for nothing but itself.
#pragma once

#include "backend/cuda/device/decode.cuh"
#include "backend/cuda/device/mma.cuh"
#include "backend/cuda/device/product.h"

namespace kvasir::backend::cuda {

// kNt: tiles of 8 rows. One: x is f32; more: bf16.
template <class F, int kNt>
struct Plan {
  static constexpr bool kIsF32 = kNt == 1;
  static constexpr unsigned kChunks = kIsF32 ? 2 : 1;  // of K in one stage
  static constexpr unsigned kStages = F::kIsDense               ? (kIsF32 ? 4 : kNt == 8 ? 3 : 5)
                                      : F::kCode == Code::nibble ? (kIsF32 ? 8 : kNt == 8 ? 5 : 7)
                                                                 : (kIsF32 ? 6 : kNt == 8 ? 4 : 6);
  static constexpr unsigned kRows = 8 * kNt;
  // Bytes of one row of x in a stage. f32 rows are moved by 32 bytes each, so that a quarter warp
  // reads 128 bytes of different banks; bf16 rows are swizzled instead.
  static constexpr unsigned kXRowBytes = kIsF32 ? kChunks * kChunkK * 4 + 32 : kChunkK * 2;
  // Operands in registers: of the steps at hand and the next ones.
  static constexpr unsigned kRing = kNt <= 2 ? 4 : 2, kAhead = kRing - 1;
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

// One chunk of a tile, by its warp; zeros past K's end.
template <class F>
__device__ inline void load_weights(
    const Weight& w, std::uint32_t tile, std::uint32_t chunk, unsigned lane, std::uint32_t to) {
  const auto* data = static_cast<const unsigned char*>(w.data);
  if constexpr (F::kIsDense) {
    const unsigned piece = lane % 16;
    const std::uint32_t k = chunk * kChunkK + piece * 8;
    const unsigned n_bytes = k < w.k ? 16 : 0;
    const unsigned last = w.n_out - 1 - tile * kTileRows;
    const unsigned char* from =
        data + (std::size_t{tile} * kTileRows * w.k + (n_bytes ? k : 0)) * 2;
#pragma unroll
    for (unsigned j = 0; j < kTileRows / 2; ++j) {
      const unsigned row = 2 * j + lane / 16;
      copy16(to + row * 256 + ((piece ^ (row & 7)) * 16), from + std::size_t{min(row, last)} * w.k * 2,
             n_bytes);
    }
  } else {
    const std::uint32_t n_chunks = chunks_of(w.k);
    const bool is_there = chunk < n_chunks;
    const unsigned char* from =
        data + (std::size_t{tile} * n_chunks + (is_there ? chunk : 0)) * w.chunk_bytes;
    for (unsigned at = lane * 16; at < w.chunk_bytes; at += 512)
      copy16(to + at, from + at, is_there ? 16 : 0);
  }
}

// A stage's columns of f32 x: a row by a warp, as it comes.
template <class P, bool kIsGrouped>
__device__ inline void load_x_f32(const ProductArgs& p,
                                  const Part& part,
                                  std::uint32_t stage,
                                  std::uint32_t to,
                                  bool is_aligned) {
  const unsigned lane = threadIdx.x % 32, n_warps = blockDim.x / 32;
  const auto* x = static_cast<const float*>(p.x);
  for (unsigned row = threadIdx.x / 32; row < part.n_rows; row += n_warps) {
    const float* from = x + x_row<kIsGrouped>(p, part.first + row) * p.x_stride + part.x_column;
#pragma unroll
    for (unsigned j = 0; j < P::kChunks; ++j) {
      const std::uint32_t k = (stage * P::kChunks + j) * kChunkK + lane * 4;
      const std::uint32_t at = to + row * P::kXRowBytes + (j * kChunkK + lane * 4) * 4;
      const unsigned n_there = k < part.w.n_in ? min(4u, part.w.n_in - k) : 0;
      if (is_aligned) {
        copy16(at, n_there ? from + k : x, 4 * n_there);
      } else {
        for (unsigned i = 0; i < 4; ++i)
          copy4(at + 4 * i, i < n_there ? from + k + i : x, i < n_there ? 4 : 0);
      }
    }
  }
}

// Of bf16 x, rows past the last as zeros.
template <class P, bool kIsGrouped>
__device__ inline void load_x_bf16(const ProductArgs& p,
                                   const Part& part,
                                   std::uint32_t stage,
                                   std::uint32_t to) {
  const unsigned piece = threadIdx.x % 16;
  const auto* x = static_cast<const unsigned char*>(p.x);
  const std::uint32_t k = stage * kChunkK + piece * 8;
  const unsigned n_bytes = k < part.w.n_in ? min(16u, (part.w.n_in - k) * 2) : 0;
  for (unsigned row = threadIdx.x / 16; row < P::kRows; row += blockDim.x / 16) {
    const bool is_there = row < part.n_rows && n_bytes > 0;
    const std::size_t column = part.x_column + k;
    const unsigned char* from =
        is_there ? x + (x_row<kIsGrouped>(p, part.first + row) * p.x_stride + column) * 2 : x;
    copy16(to + row * P::kXRowBytes + (piece ^ (row & 7)) * 16, from, is_there ? n_bytes : 0);
  }
}

// The weights of one thread, chunk after chunk.
template <class F>
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
      ldmatrix_x4(a, shared_address(at) + row * 256 + ((piece ^ (row & 7)) * 16));
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
template <int kNt>
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
        ldmatrix_x4(b + 2 * nt, shared_address(at) + row * 256 + ((piece ^ (row & 7)) * 16));
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

  const std::uint32_t chunk_bytes = F::kIsDense ? codes_bytes(Code::bf16) : p.chunk_bytes;
  const std::uint32_t weights_bytes = n_warps * P::kChunks * chunk_bytes;
  const std::uint32_t x_rows = !P::kIsF32 || kIsGrouped ? P::kRows : min(p.n_rows, P::kRows);
  const std::uint32_t stage_bytes = weights_bytes + x_rows * P::kXRowBytes;
  const std::uint32_t own = warp * P::kChunks * chunk_bytes;
  const bool is_aligned =
      ((reinterpret_cast<std::uintptr_t>(p.x) | ((p.x_stride | part.x_column) * 4)) & 15) == 0;

  const auto load = [&](std::uint32_t stage, std::uint32_t slot) {
    const std::uint32_t to = shared_address(shared) + slot * stage_bytes;
#pragma unroll
    for (unsigned c = 0; c < P::kChunks; ++c)
      load_weights<F>(part.w, tile, stage * P::kChunks + c, lane, to + own + c * chunk_bytes);
    if constexpr (P::kIsF32) {
      load_x_f32<P, kIsGrouped>(p, part, stage, to + weights_bytes, is_aligned);
    } else {
      load_x_bf16<P, kIsGrouped>(p, part, stage, to + weights_bytes);
    }
  };
  for (std::uint32_t s = 0; s + 1 < P::kStages; ++s) {
    if (s < n_stages) load(s, s);
    copies_commit();
  }

  WeightOperand<F> weights{lane, static_cast<float>(part.w.offset),
                           31u - static_cast<unsigned>(__clz(static_cast<int>(part.w.group)))};
  XOperand<kNt> x{lane, lane / 4 < part.n_rows, nullptr};
  const std::uint32_t x_at = weights_bytes + (P::kIsF32 && x.has_row ? lane / 4 * P::kXRowBytes : 0);
  std::uint32_t slot = 0, free_slot = P::kStages - 1;
  const unsigned char* at = shared;
  // Waits for a stage and starts the copies of the one that takes the place of the stage before:
  // everyone has its operands in registers.
  const auto begin_stage = [&](std::uint32_t stage) {
    copies_wait<static_cast<int>(P::kStages) - 2>();
    __syncthreads();
    if (stage + P::kStages - 1 < n_stages) load(stage + P::kStages - 1, free_slot);
    copies_commit();
    at = shared + slot * stage_bytes;
    free_slot = slot;
    slot = slot + 1 == P::kStages ? 0 : slot + 1;
  };
  const auto begin_chunk = [&](unsigned c) {
    weights.begin_chunk(at + own + c * chunk_bytes);
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

template <class F, int kNt, bool kIsGrouped>
void launch_plan(Queue& queue, const ProductArgs& p) {
  using P = Plan<F, kNt>;
  const unsigned n_tiles = (p.weight.n_out + kTileRows - 1) / kTileRows;
  const unsigned x_rows = !P::kIsF32 || kIsGrouped || p.n_rows > P::kRows ? P::kRows : p.n_rows;
  const unsigned chunk_bytes = F::kIsDense ? codes_bytes(Code::bf16) : p.chunk_bytes;
  const std::size_t shared_bytes =
      std::size_t{P::kStages} * (p.n_warps * P::kChunks * chunk_bytes + x_rows * P::kXRowBytes);
  queue.launch(&product_kernel<F, kNt, kIsGrouped>,
               grid_of(p, (n_tiles + p.n_warps - 1) / p.n_warps, P::kRows), 32 * p.n_warps,
               shared_bytes, p);
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
