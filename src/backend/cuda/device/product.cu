// A warp owns a tile of 16 outputs and walks K once: it multiplies chunk after chunk while the next
// ones are on their way into a ring in shared memory. Weights are streamed once for at most 64 rows;
// x is small and comes along, rounded to bf16 where it is read (few rows) or before (convert_rows).
#include "backend/cuda/device/product.h"

#include "backend/cuda/device/decode.cuh"
#include "backend/cuda/device/mma.cuh"

namespace kvasir::backend::cuda {
namespace {

// kNt: tiles of 8 rows. One: x is f32; more: bf16.
template <Code kCode, int kNt>
struct Plan {
  static constexpr bool kIsF32 = kNt == 1;
  static constexpr unsigned kChunks = kIsF32 ? 2 : 1;  // of K in one stage
  static constexpr unsigned kStages = kCode == Code::bf16     ? (kIsF32 ? 4 : 5)
                                      : kCode == Code::nibble ? (kIsF32 ? 8 : 7)
                                                              : 6;
  static constexpr unsigned kRows = 8 * kNt;
  // Bytes of one row of x in a stage. f32 rows are moved by 32 bytes each, so that a quarter warp
  // reads 128 bytes of different banks; bf16 rows are swizzled instead.
  static constexpr unsigned kXRowBytes = kIsF32 ? kChunks * kChunkK * 4 + 32 : kChunkK * 2;
};

// What a block works on.
struct Part {
  Weight w;
  const float* bias;
  std::uint32_t first, n_rows;         // rows of out
  std::uint32_t x_column, out_column;  // where the head's columns begin
};

template <bool kIsGrouped, unsigned kRows>
__device__ Part part_of_block(const ProductArgs& p) {
  const auto tile = [&](std::uint32_t index) {
    const std::uint32_t first = index * kRows;
    return Part{p.weight, p.bias, first, min(kRows, p.n_rows - first), 0, 0};
  };
  if constexpr (!kIsGrouped) return tile(blockIdx.y);
  const auto bias = [&](std::uint32_t e) { return p.grouped.biases ? p.grouped.biases[e] : nullptr; };
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

template <bool kIsGrouped>
__device__ std::uint32_t x_row(const ProductArgs& p, std::uint32_t row) {
  if constexpr (kIsGrouped)
    if (p.grouped.slots) return p.grouped.slots[row] / p.grouped.top_k;
  return row;
}

// One chunk of a tile, by its warp.
template <Code kCode>
__device__ void load_weights(
    const Weight& w, std::uint32_t tile, std::uint32_t chunk, unsigned lane, std::uint32_t to) {
  const auto* data = static_cast<const unsigned char*>(w.data);
  if constexpr (kCode == Code::bf16) {
    const unsigned piece = lane % 16;
    const unsigned n_bytes = chunk * kChunkK + piece * 8 < w.k ? 16 : 0;
    const std::size_t column = n_bytes ? (std::size_t{chunk} * kChunkK + piece * 8) * 2 : 0;
#pragma unroll
    for (unsigned j = 0; j < kTileRows / 2; ++j) {
      const unsigned row = 2 * j + lane / 16;
      const std::uint32_t output = min(tile * kTileRows + row, w.n_out - 1);
      copy16(to + row * 256 + ((piece ^ (row & 7)) * 16),
             data + std::size_t{output} * w.k * 2 + column, n_bytes);
    }
  } else {
    const unsigned char* from =
        data + (std::size_t{tile} * chunks_of(w.k) + chunk) * w.chunk_bytes;
    for (unsigned at = lane * 16; at < w.chunk_bytes; at += 512) copy16(to + at, from + at, 16);
  }
}

// A stage's columns of x, by the whole block.
template <class Shape, bool kIsGrouped>
__device__ void load_x(const ProductArgs& p, const Part& part, std::uint32_t stage, std::uint32_t to) {
  constexpr unsigned kPieces = Shape::kChunks * kChunkK / (Shape::kIsF32 ? 4 : 8);
  constexpr unsigned kElement = Shape::kIsF32 ? 4 : 2;
  const auto* x = static_cast<const unsigned char*>(p.x);
  const std::uint32_t n_in = part.w.n_in;
  const bool is_aligned =
      !Shape::kIsF32 ||
      ((reinterpret_cast<std::uintptr_t>(x) | ((p.x_stride | part.x_column) * 4)) & 15) == 0;
  const unsigned n_pieces = (Shape::kIsF32 ? part.n_rows : Shape::kRows) * kPieces;
  for (unsigned i = threadIdx.x; i < n_pieces; i += blockDim.x) {
    const unsigned row = i / kPieces, piece = i % kPieces;
    const std::uint32_t k = stage * Shape::kChunks * kChunkK + piece * (16 / kElement);
    const bool is_there = row < part.n_rows && k < n_in;
    const unsigned n_bytes = is_there ? min(16u, (n_in - k) * kElement) : 0;
    const unsigned char* from =
        is_there ? x + (x_row<kIsGrouped>(p, part.first + row) * p.x_stride + part.x_column + k) *
                           kElement
                 : x;
    const std::uint32_t at =
        to + row * Shape::kXRowBytes + (Shape::kIsF32 ? piece : piece ^ (row & 7)) * 16;
    if (is_aligned) {
      copy16(at, from, n_bytes);
    } else {
      for (unsigned j = 0; j < 4; ++j)
        copy4(at + 4 * j, 4 * j < n_bytes ? from + 4 * j : x, 4 * j < n_bytes ? 4 : 0);
    }
  }
}

// The weights of one thread for a step of 16 elements of K.
template <Code kCode, bool kIsFast>
struct Operand {
  const Weight& w;
  const unsigned char* at;  // the chunk in shared memory
  unsigned lane;
  float offset;
  RowScales scales;
  uint4 words;

  __device__ void load(unsigned step, std::uint32_t (&a)[4]) {
    if constexpr (kCode == Code::bf16) {
      const unsigned row = lane % 16, piece = 2 * step + lane / 16;
      ldmatrix_x4(a, shared_address(at) + row * 256 + ((piece ^ (row & 7)) * 16));
      return;
    }
    if (step * 16 % w.group == 0) {
      const unsigned row_bytes = scale_bytes(w.scale) * (w.has_bias ? 2 : 1);
      load_scales<kIsFast>(
          scales, w, at + codes_bytes(kCode) + step * 16 / w.group * kTileRows * row_bytes, lane);
    }
    const auto* codes = reinterpret_cast<const uint4*>(at);
    if constexpr (kCode == Code::nibble) {
      if (step % 4 == 0) words = codes[step / 4 * 32 + lane];
      const std::uint32_t word = step % 4 == 0   ? words.x
                                 : step % 4 == 1 ? words.y
                                 : step % 4 == 2 ? words.z
                                                 : words.w;
      if constexpr (kIsFast) {
        decode_nibbles_bf16(word, scales, a);
      } else {
        decode_nibbles(word, scales, offset, a);
      }
    } else {
      if (step % 2 == 0) words = codes[step / 2 * 32 + lane];
      decode_bytes(step % 2 ? words.z : words.x, step % 2 ? words.w : words.y, scales, offset, a);
    }
  }
};

// Row lane / 4 of x as operand B of a step, rounded to bf16.
__device__ void x_from_f32(const unsigned char* x, unsigned step, unsigned lane, bool has_row,
                           std::uint32_t (&b)[2]) {
  const auto* row = reinterpret_cast<const float*>(x) + step * 16 + 2 * (lane % 4);
  const float2 low = *reinterpret_cast<const float2*>(row);
  const float2 high = *reinterpret_cast<const float2*>(row + 8);
  b[0] = has_row ? pack_bf16(low.x, low.y) : 0;
  b[1] = has_row ? pack_bf16(high.x, high.y) : 0;
}

// One chunk's steps.
template <Code kCode, int kNt, bool kIsFast, unsigned kN>
__device__ void multiply(const Weight& w,
                         const unsigned char* weights,
                         const unsigned char* x,
                         unsigned lane,
                         bool has_row,
                         float (&sums)[kNt][4]) {
  Operand<kCode, kIsFast> operand{w, weights, lane, static_cast<float>(w.offset), {}, {}};
#pragma unroll
  for (unsigned step = 0; step < kN; ++step) {
    std::uint32_t a[4];
    operand.load(step, a);
    if constexpr (kNt == 1) {
      std::uint32_t b[2];
      x_from_f32(x, step, lane, has_row, b);
      mma_bf16(sums[0], a, b[0], b[1]);
    } else {
#pragma unroll
      for (int nt = 0; nt < kNt; nt += 2) {
        const unsigned row = nt * 8 + lane % 8 + lane / 16 * 8, piece = 2 * step + lane / 8 % 2;
        std::uint32_t b[4];
        ldmatrix_x4(b, shared_address(x) + row * 256 + ((piece ^ (row & 7)) * 16));
        mma_bf16(sums[nt], a, b[0], b[1]);
        mma_bf16(sums[nt + 1], a, b[2], b[3]);
      }
    }
  }
}

template <Code kCode, int kNt, bool kIsFast>
__device__ void multiply_stage(const Part& part,
                               std::uint32_t stage,
                               const unsigned char* weights,
                               std::uint32_t chunk_bytes,
                               const unsigned char* x,
                               unsigned lane,
                               float (&sums)[kNt][4]) {
  using Shape = Plan<kCode, kNt>;
  bool has_row = true;
  if constexpr (Shape::kIsF32) {
    has_row = lane / 4 < part.n_rows;
    x += has_row ? lane / 4 * Shape::kXRowBytes : 0;
  }
#pragma unroll
  for (unsigned c = 0; c < Shape::kChunks; ++c) {
    const std::uint32_t k = (stage * Shape::kChunks + c) * kChunkK;
    const unsigned char* x_chunk = x + c * kChunkK * 4;  // one chunk a stage where x is bf16
    if (k + kPadK < part.w.k) {
      multiply<kCode, kNt, kIsFast, kSteps>(part.w, weights + c * chunk_bytes, x_chunk, lane,
                                            has_row, sums);
    } else if (k < part.w.k) {
      multiply<kCode, kNt, kIsFast, kPadK / 16>(part.w, weights + c * chunk_bytes, x_chunk, lane,
                                                has_row, sums);
    }
  }
}

template <int kNt>
__device__ void store(const ProductArgs& p,
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

template <Code kCode, int kNt, bool kIsGrouped>
__global__ void __launch_bounds__(128) product_kernel(const __grid_constant__ ProductArgs p) {
  using Shape = Plan<kCode, kNt>;
  extern __shared__ __align__(128) unsigned char shared[];
  const Part part = part_of_block<kIsGrouped, Shape::kRows>(p);
  if (kIsGrouped && part.n_rows == 0) return;
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = blockDim.x / 32;
  const std::uint32_t n_tiles = (part.w.n_out + kTileRows - 1) / kTileRows;
  const std::uint32_t tile = min(blockIdx.x * n_warps + warp, n_tiles - 1);
  const std::uint32_t n_chunks = chunks_of(part.w.k);
  const std::uint32_t n_stages = (n_chunks + Shape::kChunks - 1) / Shape::kChunks;

  const std::uint32_t weights_bytes = n_warps * Shape::kChunks * p.chunk_bytes;
  const std::uint32_t x_rows = !Shape::kIsF32 || kIsGrouped ? Shape::kRows : min(p.n_rows, 8u);
  const std::uint32_t stage_bytes = weights_bytes + x_rows * Shape::kXRowBytes;
  const std::uint32_t own = warp * Shape::kChunks * p.chunk_bytes;

  const auto load = [&](std::uint32_t stage, std::uint32_t slot) {
    const std::uint32_t to = shared_address(shared) + slot * stage_bytes;
#pragma unroll
    for (unsigned c = 0; c < Shape::kChunks; ++c) {
      const std::uint32_t chunk = stage * Shape::kChunks + c;
      if (chunk < n_chunks)
        load_weights<kCode>(part.w, tile, chunk, lane, to + own + c * p.chunk_bytes);
    }
    load_x<Shape, kIsGrouped>(p, part, stage, to + weights_bytes);
  };
  for (std::uint32_t s = 0; s + 1 < Shape::kStages; ++s) {
    if (s < n_stages) load(s, s);
    copies_commit();
  }

  float sums[kNt][4] = {};
  std::uint32_t slot = 0, free_slot = Shape::kStages - 1;
  for (std::uint32_t s = 0; s < n_stages; ++s) {
    copies_wait<static_cast<int>(Shape::kStages) - 2>();
    __syncthreads();  // everyone's copies are here, and everyone has left the slot before
    if (s + Shape::kStages - 1 < n_stages) load(s + Shape::kStages - 1, free_slot);
    copies_commit();
    const unsigned char* at = shared + slot * stage_bytes;
    if (kCode == Code::nibble && part.w.bf16_fma) {
      multiply_stage<kCode, kNt, true>(part, s, at + own, p.chunk_bytes, at + weights_bytes, lane,
                                       sums);
    } else {
      multiply_stage<kCode, kNt, false>(part, s, at + own, p.chunk_bytes, at + weights_bytes, lane,
                                        sums);
    }
    free_slot = slot;
    slot = slot + 1 == Shape::kStages ? 0 : slot + 1;
  }
  if (blockIdx.x * n_warps + warp < n_tiles) store<kNt>(p, part, tile, lane, sums);
}

// f32 weights: lane l adds k = 4·l + j + 128·i, i then j ascending, then the lanes are added in
// halves (16, 8, 4, 2, 1).
template <bool kIsGrouped>
__global__ void __launch_bounds__(128) product_f32_kernel(const __grid_constant__ ProductArgs p) {
  const Part part = part_of_block<kIsGrouped, kFewRows>(p);
  const unsigned lane = threadIdx.x % 32;
  const std::uint32_t output = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (output >= part.w.n_out || part.n_rows == 0) return;
  const auto* w = static_cast<const float*>(part.w.data) + std::size_t{output} * part.w.k;
  const auto* x = static_cast<const float*>(p.x);
  float sums[kFewRows] = {};
  for (std::uint32_t k = 4 * lane; k < part.w.n_in; k += 128) {
    const float4 four = *reinterpret_cast<const float4*>(w + k);
    const float weights[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (std::uint32_t t = 0; t < kFewRows; ++t) {
      if (t >= part.n_rows) break;
      const float* row = x + x_row<kIsGrouped>(p, part.first + t) * p.x_stride + part.x_column + k;
#pragma unroll
      for (std::uint32_t j = 0; j < 4; ++j)
        sums[t] = __fmaf_rn(weights[j], k + j < part.w.n_in ? row[j] : 0.0f, sums[t]);
    }
  }
#pragma unroll
  for (std::uint32_t t = 0; t < kFewRows; ++t) {
    if (t >= part.n_rows) break;
    for (int half = 16; half > 0; half /= 2)
      sums[t] = __fadd_rn(sums[t], __shfl_xor_sync(0xffffffffu, sums[t], half));
    if (lane == 0)
      p.out[(part.first + t) * p.out_stride + part.out_column + output] =
          part.bias ? __fadd_rn(sums[t], part.bias[output]) : sums[t];
  }
}

// blocks: of one column.
dim3 grid_of(const ProductArgs& p, unsigned blocks, unsigned rows_of_column) {
  const unsigned columns = (p.n_rows + rows_of_column - 1) / rows_of_column;
  if (!p.grouped.weights) return dim3(blocks, columns);
  return dim3(blocks, p.grouped.n_items, p.grouped.items ? 1 : columns);
}

template <Code kCode, int kNt, bool kIsGrouped>
void launch_plan(Queue& queue, const ProductArgs& p) {
  using Shape = Plan<kCode, kNt>;
  const unsigned n_tiles = (p.weight.n_out + kTileRows - 1) / kTileRows;
  const unsigned x_rows = !Shape::kIsF32 || kIsGrouped ? Shape::kRows
                          : p.n_rows < kFewRows        ? p.n_rows
                                                       : kFewRows;
  const std::size_t shared_bytes =
      std::size_t{Shape::kStages} *
      (p.n_warps * Shape::kChunks * p.chunk_bytes + x_rows * Shape::kXRowBytes);
  queue.launch(&product_kernel<kCode, kNt, kIsGrouped>,
               grid_of(p, (n_tiles + p.n_warps - 1) / p.n_warps, Shape::kRows), 32 * p.n_warps,
               shared_bytes, p);
}

template <Code kCode>
void launch_code(Queue& queue, const ProductArgs& p) {
  if (p.grouped.weights) {
    return p.x_is_bf16 ? launch_plan<kCode, 8, true>(queue, p)
                       : launch_plan<kCode, 1, true>(queue, p);
  }
  if (!p.x_is_bf16) return launch_plan<kCode, 1, false>(queue, p);
  if (p.n_rows <= 16) return launch_plan<kCode, 2, false>(queue, p);
  if (p.n_rows <= 32) return launch_plan<kCode, 4, false>(queue, p);
  launch_plan<kCode, 8, false>(queue, p);
}

}  // namespace

void launch_product(Queue& queue, const ProductArgs& args) {
  switch (args.weight.code) {
    case Code::bf16:
      return launch_code<Code::bf16>(queue, args);
    case Code::nibble:
      return launch_code<Code::nibble>(queue, args);
    case Code::byte:
      return launch_code<Code::byte>(queue, args);
    case Code::f32:
      return launch_product_f32(queue, args);
  }
}

void launch_product_f32(Queue& queue, const ProductArgs& args) {
  constexpr unsigned kWarps = 4;
  const dim3 grid = grid_of(args, (args.weight.n_out + kWarps - 1) / kWarps, kFewRows);
  args.grouped.weights
      ? queue.launch(&product_f32_kernel<true>, grid, 32 * kWarps, 0, args)
      : queue.launch(&product_f32_kernel<false>, grid, 32 * kWarps, 0, args);
}

}  // namespace kvasir::backend::cuda
