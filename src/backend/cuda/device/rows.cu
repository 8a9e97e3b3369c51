#include "backend/cuda/device/chain.cuh"
#include "backend/cuda/device/decode.cuh"
#include "backend/cuda/device/mma.cuh"
#include "backend/cuda/device/rows.h"

namespace kvasir::backend::cuda {
namespace {

constexpr unsigned kThreads = 256;

unsigned blocks_for(std::size_t n) { return static_cast<unsigned>((n + kThreads - 1) / kThreads); }

// Elements k … k + 7 of a row, zeros past its end.
__device__ uint4 eight_of(const ConstMat& x, std::uint32_t row, std::uint32_t k) {
  if (row >= x.n_rows || k >= x.n_cols) return {0, 0, 0, 0};
  const float* from = x.row(row) + k;
  float v[8];
  if (k + 8 <= x.n_cols && reinterpret_cast<std::uintptr_t>(from) % 16 == 0) {
    *reinterpret_cast<float4*>(v) = *reinterpret_cast<const float4*>(from);
    *reinterpret_cast<float4*>(v + 4) = *reinterpret_cast<const float4*>(from + 4);
  } else {
#pragma unroll
    for (unsigned j = 0; j < 8; ++j) v[j] = k + j < x.n_cols ? from[j] : 0.0f;
  }
  return {pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]),
          pack_bf16(v[6], v[7])};
}

// Eight elements a thread.
__global__ void convert_kernel(const __grid_constant__ ConvertArgs p) {
  begin_early();
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::uint32_t n_eights = p.k / 8;
  const std::uint32_t row = static_cast<std::uint32_t>(i / n_eights);
  if (row < p.x.n_rows)
    static_cast<uint4*>(p.out)[i] =
        eight_of(p.x, row, static_cast<std::uint32_t>(i % n_eights) * 8);
}

// A block a chunk and tile.
__global__ void convert_tiles_kernel(const __grid_constant__ ConvertArgs p) {
  begin_early();
  const std::uint32_t n_pieces = p.tile_rows * kChunkK / 8;
  auto* const out =
      static_cast<uint4*>(p.out) +
      (std::size_t{blockIdx.y} * gridDim.x + blockIdx.x) * p.tile_rows * (kTiledRow / 8);
  for (std::uint32_t i = threadIdx.x; i < n_pieces; i += kThreads) {
    const std::uint32_t row = i / (kChunkK / 8), piece = i % (kChunkK / 8);
    out[row * (kTiledRow / 8) + piece] =
        eight_of(p.x, blockIdx.y * p.tile_rows + row, blockIdx.x * kChunkK + piece * 8);
  }
}

// Eight elements a thread.
__global__ void convert_wide_kernel(const __grid_constant__ ConvertWideArgs p) {
  begin_early();
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::uint32_t row = static_cast<std::uint32_t>(i / (p.k / 8));
  const std::uint32_t piece = static_cast<std::uint32_t>(i % (p.k / 8));
  if (row >= p.x.n_rows) return;
  const std::uint32_t in_tile = row % p.tile_rows;
  const std::size_t panel = std::size_t{row / p.tile_rows} * (p.k / 64) + piece / 8;
  uint4 eight{0, 0, 0, 0};
  if (!p.rounded) {
    eight = eight_of(p.x, row, piece * 8);
  } else if (piece * 8 < p.x.n_cols) {
    eight = static_cast<const uint4*>(p.rounded)[row * p.x.stride / 8 + piece];
  }
  static_cast<uint4*>(p.out)[(panel * p.tile_rows + in_tile) * 8 + (piece % 8 ^ in_tile % 8)] =
      eight;
}

// One chunk of a tile by a warp. A thread has eight elements of K of rows g and g + 8, g = its own,
// then every second one after it: of a step's operands those of four lanes.
template <class F>
__global__ void decode_kernel(const __grid_constant__ DecodeArgs p) {
  constexpr unsigned kRounds = 4;
  const unsigned lane = threadIdx.x % 32, step = lane % 16 / 2, k_half = lane % 2;
  const std::uint32_t n_chunks = chunks_of(p.weight.k);
  const std::uint32_t chunk = blockIdx.x * (kThreads / 32) + threadIdx.x / 32;
  const std::uint32_t k = chunk * kChunkK + step * 16 + k_half * 8;
  if (chunk >= n_chunks || k >= p.weight.k) return;
  const std::uint32_t tile = p.first / kTileRows + blockIdx.y;
  const unsigned char* at = static_cast<const unsigned char*>(p.weight.data) +
                            (std::size_t{tile} * n_chunks + chunk) * p.weight.chunk_bytes;
  const unsigned char* scales =
      at + codes_bytes(F::kCode) + step * 16 / p.weight.group * kTileRows * F::kRowBytes;
  const auto* words = reinterpret_cast<const std::uint32_t*>(at);
  std::uint32_t codes[kRounds][4];
  RawScale<F> raw[kRounds][2];
#pragma unroll
  for (unsigned i = 0; i < kRounds; ++i) {
    const unsigned g = lane / 16 + 2 * i;
#pragma unroll
    for (unsigned c = 0; c < 4; ++c)
      codes[i][c] = F::kCode == Code::nibble
                        ? words[(step / 4 * 32 + g * 4 + c) * 4 + step % 4]
                        : words[((step / 2 * 32 + g * 4 + c) * 2 + step % 2) * 2 + k_half];
#pragma unroll
    for (unsigned half = 0; half < 2; ++half)
      raw[i][half] = fetch_scale<F>(scales + (g + 8 * half) * F::kRowBytes);
  }
  const float offset = static_cast<float>(p.weight.offset);
#pragma unroll
  for (unsigned i = 0; i < kRounds; ++i) {
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
      const std::uint32_t row = blockIdx.y * kTileRows + lane / 16 + 2 * i + 8 * half;
      const RowScale scale = scale_of<F>(raw[i][half], offset);
      std::uint32_t pairs[4];
#pragma unroll
      for (unsigned c = 0; c < 4; ++c)
        pairs[c] = F::kCode == Code::nibble
                       ? decode_nibble_pair<F>(codes[i][c] >> (8 * k_half), half, scale, offset)
                       : decode_byte_pair<F>(codes[i][c], half, scale, offset);
      if (row < p.n)
        static_cast<uint4*>(p.out)[(std::size_t{row} * p.weight.k + k) / 8] = {pairs[0], pairs[1],
                                                                               pairs[2], pairs[3]};
    }
  }
}

__global__ void add_bias_kernel(const __grid_constant__ AddBiasArgs p) {
  begin_early();
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::size_t row = i / p.out.n_cols, column = i % p.out.n_cols;
  if (row >= p.out.n_rows) return;
  float& out = p.out.row(row)[column];
  out = __fadd_rn(out, p.bias[column]);
}

// One element of a packed weight in f32: quantized ones fma(code, scale, bias), not rounded.
__device__ float element(const Weight& w, std::uint32_t row, std::uint32_t k) {
  const std::size_t at = std::size_t{row} * w.k + k;
  if (w.code == Code::f32) return static_cast<const float*>(w.data)[at];
  if (w.code == Code::bf16)
    return __uint_as_float(std::uint32_t{static_cast<const unsigned short*>(w.data)[at]} << 16);
  const unsigned in_tile = row % kTileRows, in_chunk = k % kChunkK, in_step = k % 16;
  const unsigned step = in_chunk / 16, lane = in_tile % 8 * 4 + in_step % 8 / 2;
  const unsigned r = in_tile / 8 + in_step / 8 * 2, h = in_step % 2;
  const unsigned char* chunk =
      static_cast<const unsigned char*>(w.data) +
      (std::size_t{row / kTileRows} * chunks_of(w.k) + k / kChunkK) * w.chunk_bytes;
  unsigned code;
  if (w.code == Code::nibble) {
    const auto* words = reinterpret_cast<const std::uint32_t*>(chunk);
    code = words[(step / 4 * 32 + lane) * 4 + step % 4] >> (4 * r + 16 * h) & 15;
  } else {
    code = chunk[((step / 2 * 32 + lane) * 2 + step % 2) * 8 + 2 * r + h];
  }
  const unsigned n_values = w.has_bias ? 2 : 1;
  const unsigned at_scale = (in_chunk / w.group * kTileRows + in_tile) * n_values;
  const unsigned char* scales = chunk + codes_bytes(w.code);
  float scale, bias = 0.0f;
  if (w.scale == ScaleKind::f32) {
    scale = reinterpret_cast<const float*>(scales)[at_scale];
    if (w.has_bias) bias = reinterpret_cast<const float*>(scales)[at_scale + 1];
  } else {
    const auto* halves = reinterpret_cast<const unsigned short*>(scales);
    scale = half_bits(halves[at_scale], w.scale == ScaleKind::f16);
    if (w.has_bias) bias = half_bits(halves[at_scale + 1], w.scale == ScaleKind::f16);
    scale = ldexpf(scale, -scale_shift(w.code, w.scale));
  }
  const float value = static_cast<float>(static_cast<int>(code) - static_cast<int>(w.offset));
  return __fmaf_rn(value, scale, bias);
}

__global__ void embed_kernel(const __grid_constant__ EmbedRowsArgs p) {
  const std::uint32_t k = blockIdx.x * kThreads + threadIdx.x;
  if (k >= p.out.n_cols) return;
  constexpr std::uint32_t kPickedBit = 0x80000000u, kNoToken = 0xffffffffu;
  std::uint32_t token = p.tokens[blockIdx.y];
  if (token & kPickedBit) token = p.picked[token & ~kPickedBit];
  if (token == kNoToken) token = 0;
  p.out.row(blockIdx.y)[k] = __fmul_rn(element(p.table, token, k), p.scale);
}

__global__ void noise_kernel(const __grid_constant__ NoiseArgs p) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= p.n) return;
  std::uint32_t x = static_cast<std::uint32_t>(i) * 2654435761u + 12345u;  // mixed as murmur3 ends
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  const float value = static_cast<float>(static_cast<int>(x ^ (x >> 16))) * 0x1p-31f;
  p.out[i] = value;
}

__global__ void compare_kernel(const __grid_constant__ CompareArgs p) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::size_t row = i / p.a.n_cols, column = i % p.a.n_cols;
  if (row >= p.a.n_rows) return;
  if (__float_as_uint(p.a.row(row)[column]) != __float_as_uint(p.b.row(row)[column]))
    atomicAdd(p.n_different, 1u);
}

}  // namespace

void launch_convert_rows(Queue& queue, const ConvertArgs& args) {
  queue.launch_early(&convert_kernel, dim3(blocks_for(std::size_t{args.x.n_rows} * args.k / 8)),
                     kThreads, 0, args);
}

void launch_convert_tiles(Queue& queue, const ConvertArgs& args, std::uint32_t tile_rows) {
  ConvertArgs p = args;
  p.tile_rows = tile_rows;
  queue.launch_early(&convert_tiles_kernel,
                     dim3(tiled_chunks(p.k), (p.x.n_rows + tile_rows - 1) / tile_rows), kThreads, 0,
                     p);
}

void launch_convert_wide(Queue& queue, const ConvertWideArgs& args) {
  queue.launch_early(&convert_wide_kernel,
                     dim3(blocks_for(std::size_t{args.x.n_rows} * args.k / 8)), kThreads, 0, args);
}

void launch_decode(Queue& queue, const DecodeArgs& args) {
  const dim3 grid((chunks_of(args.weight.k) + kThreads / 32 - 1) / (kThreads / 32),
                  (args.n + kTileRows - 1) / kTileRows);
  const auto launch = [&]<Code kCode, ScaleKind kScale, bool kHasBias>() {
    queue.launch(&decode_kernel<Format<kCode, kScale, kHasBias>>, grid, kThreads, 0, args);
  };
  const auto launch_code = [&]<Code kCode>() {
    const bool has_bias = args.weight.has_bias;
    switch (args.weight.scale) {
      case ScaleKind::f32:
        return has_bias ? launch.template operator()<kCode, ScaleKind::f32, true>()
                        : launch.template operator()<kCode, ScaleKind::f32, false>();
      case ScaleKind::f16:
        return has_bias ? launch.template operator()<kCode, ScaleKind::f16, true>()
                        : launch.template operator()<kCode, ScaleKind::f16, false>();
      case ScaleKind::bf16:
        return launch.template operator()<kCode, ScaleKind::bf16, true>();
    }
  };
  args.weight.code == Code::nibble ? launch_code.template operator()<Code::nibble>()
                                   : launch_code.template operator()<Code::byte>();
}

void launch_add_bias(Queue& queue, const AddBiasArgs& args) {
  queue.launch_early(&add_bias_kernel,
                     dim3(blocks_for(std::size_t{args.out.n_rows} * args.out.n_cols)), kThreads, 0,
                     args);
}

void launch_embed(Queue& queue, const EmbedRowsArgs& args) {
  queue.launch(&embed_kernel, dim3((args.out.n_cols + kThreads - 1) / kThreads, args.out.n_rows),
               kThreads, 0, args);
}

void launch_noise(Queue& queue, const NoiseArgs& args) {
  queue.launch(&noise_kernel, dim3(blocks_for(args.n)), kThreads, 0, args);
}

void launch_compare(Queue& queue, const CompareArgs& args) {
  queue.launch(&compare_kernel, dim3(blocks_for(std::size_t{args.a.n_rows} * args.a.n_cols)),
               kThreads, 0, args);
}

}  // namespace kvasir::backend::cuda
