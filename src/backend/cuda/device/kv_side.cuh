// Reading encoded rows element by element: code, scale and offset to a value (KV-9 to KV-17).
#pragma once

#include "backend/cuda/device/codebooks.cuh"
#include "backend/cuda/device/kv_side.h"
#include "backend/cuda/device/math.cuh"

namespace kvasir::backend::cuda {

// Element i at bit i · bits of a little-endian stream.
__device__ inline std::uint32_t code_at(const std::byte* plane,
                                        std::uint32_t i,
                                        std::uint32_t bits) {
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(plane);
  const std::uint32_t bit = i * bits, place = bit % 8;
  std::uint32_t window = bytes[bit / 8];
  if (place + bits > 8) window |= std::uint32_t{bytes[bit / 8 + 1]} << 8;
  return window >> place & ((1u << bits) - 1u);
}

struct GroupScale {
  float scale, offset;
};

// What a code of a group means. offset: as it is stored.
__device__ inline float value_of(const KvSide& side, std::uint32_t code, GroupScale g) {
  switch (side.kind) {
    case KvKind::affine:
      return fmaf(static_cast<float>(code), g.scale, g.offset);
    case KvKind::turbo_keys: {
      const float integer = side.bits == 8 ? static_cast<float>(static_cast<std::int8_t>(code))
                                           : static_cast<float>(code);
      return (integer + g.offset) * g.scale;
    }
    case KvKind::turbo_values:
      return centroid_of(side.bits, code) * g.scale;
    case KvKind::exact:
      break;
  }
  return 0.0f;
}

// Element i of row `row` of a side in either form.
__device__ inline float element_of(const KvSide& side, std::size_t row, std::uint32_t i) {
  if (side.kind == KvKind::exact)
    return load_as(side.scale_type, side.codes + row * side.code_bytes, i);
  GroupScale g{load_as(side.scale_type, side.scales + row * side.scale_bytes, i / side.group),
               0.0f};
  if (side.offsets)
    g.offset = load_as(side.scale_type, side.offsets + row * side.offset_bytes, i / side.group);
  return value_of(side, code_at(side.codes + row * side.code_bytes, i, side.bits), g);
}

// Signs of the rotation (KV-14): bit i % 64 of word i / 64 set means -1.
static __constant__ const std::uint64_t kSignWords[8] = {
    0x67831947fcd872a1u, 0x03a2a1d567d22ef6u, 0x9a95107cbef8f3d6u, 0x63fe483e793abff4u,
    0x825f3055eedfa2b5u, 0x13f289c613e64422u, 0x5cc293e2ec2aa92du, 0x19941b0ba9d3d12du};
__device__ inline float sign_of(std::uint32_t i) {
  return (kSignWords[i / 64] >> (i % 64) & 1u) != 0 ? -1.0f : 1.0f;
}
__device__ inline float rotation_scale(std::uint32_t dim) {  // f32(1 / √dim)
  return dim == 64    ? 0.125f
         : dim == 128 ? static_cast<float>(0.08838834764831845)
         : dim == 256 ? 0.0625f
                      : static_cast<float>(0.04419417382415922);
}

// Walsh-Hadamard butterflies of half 1, 2, 4 … on x[dim] in shared memory, by one warp.
__device__ inline void transform_by_warp(float* x, std::uint32_t dim) {
  for (std::uint32_t half = 1; half < dim; half *= 2) {
    for (std::uint32_t i = threadIdx.x % 32; i < dim / 2; i += 32) {
      const std::uint32_t low = i / half * 2 * half + i % half;
      const float a = x[low], b = x[low + half];
      x[low] = a + b;
      x[low + half] = a - b;
    }
    __syncwarp();
  }
}

}  // namespace kvasir::backend::cuda
