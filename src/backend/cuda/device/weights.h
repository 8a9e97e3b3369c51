// A packed weight as kernels see it (pack.cpp writes it, docs/numerics.md "backend/cuda" defines
// its products).
//
// bf16 and f32: rows [n_out][k]. Quantized: tiles of 16 outputs, each n_chunks chunks of 128
// elements of K; a chunk is [codes][scales]. Codes lie as one thread's operands of mma.m16n8k16:
// of lane l and step s (16 elements of K) the eight elements (row, k) = (l/4 + 8·(r%2),
// 16·s + 2·(l%4) + 8·(r/2) + h), r = 0 … 3, h = 0, 1.
//   nibble: a u32 at [s/4][l][s%4], the element at bit 4·r + 16·h
//   byte: a u64 at [s/2][l][s%2], the element in byte 2·r + h
// Signed codes are stored plus `offset`. Scales: [group in chunk][row] of {scale, bias} or {scale}.
// Their kinds: f32; f16, groups of at least 32; bf16, likewise and with biases, and for nibbles
// only where fma.rn.bf16x2 gives the defined weight for every code (pack.cpp). With bf16 scales are
// stored times 2^scale_shift.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace kvasir::backend::cuda {

enum class Code : std::uint32_t { bf16, f32, nibble, byte };
enum class ScaleKind : std::uint32_t { f16, bf16, f32 };

constexpr std::uint32_t kTileRows = 16;  // outputs of a tile
constexpr std::uint32_t kChunkK = 128;   // elements of K of a chunk
constexpr std::uint32_t kPadK = 64;      // K is padded with zeros to whole ones of these
constexpr std::uint32_t kSteps = kChunkK / 16;

struct Weight {
  const void* data;
  std::uint32_t n_out, n_in;
  std::uint32_t k;  // n_in up to whole kPadK
  Code code;
  // Quantized types only:
  ScaleKind scale;
  std::uint32_t has_bias, group, offset;
  std::uint32_t chunk_bytes;  // of all of a tile's 128 elements of K; a multiple of 16
  std::uint32_t pad;
};
static_assert(sizeof(Weight) == 48);

// Bits 4 to 7 of a bf16 number and bits 16 to 23 of an f32 one are multiples of 2^-129 and 2^-133
// when no others are set.
constexpr int kNibbleShift = 129, kByteShift = 133;
__host__ __device__ constexpr int scale_shift(Code code, ScaleKind kind) {
  if (kind != ScaleKind::bf16) return 0;
  return code == Code::nibble ? kNibbleShift : code == Code::byte ? kByteShift : 0;
}

__host__ __device__ constexpr std::uint32_t codes_bytes(Code code) {
  return code == Code::nibble ? 1024 : code == Code::byte ? 2048 : code == Code::bf16 ? 4096 : 8192;
}
__host__ __device__ constexpr std::uint32_t scale_bytes(ScaleKind kind) {
  return kind == ScaleKind::f32 ? 4 : 2;
}
__host__ __device__ constexpr std::uint32_t chunks_of(std::uint32_t k) {
  return (k + kChunkK - 1) / kChunkK;
}

}  // namespace kvasir::backend::cuda
