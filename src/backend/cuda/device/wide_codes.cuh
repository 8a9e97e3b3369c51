// Quantized weights of wide products as one thread's operands.
#pragma once

#include "backend/cuda/device/decode.cuh"
#include "backend/cuda/device/wide_ring.cuh"

namespace kvasir::backend::cuda {

// Which packed tiles a warp's 16 rows come from. Whole: one. Gated: a half of gate's and one of
// up's. Spread: half a tile, and 8 rows of nothing: where few tiles are there, more warps decode.
enum class SlabRows { whole, gated, spread };

struct WideSlab {
  std::uint32_t tile;  // in the pass; the first of two when gated
  unsigned half;
  bool is_there;
  __device__ WideSlab(const WideArgs& p, const WideShare::Pass& pass, unsigned index) {
    const bool is_half = p.is_spread || p.is_gated;
    tile = p.is_spread ? index / 2 : index;
    half = is_half ? index % 2 : 0;
    is_there = tile < pass.n;
    if (!is_there) tile = half = 0;  // decodes what is there; stores nothing
  }
};

// A chunk of a slab on its way from shared memory to operands.
// kScaleSteps: after so many steps of 16 elements of K a scale is read.
template <class F, SlabRows kRows, unsigned kScaleSteps = F::kScaleSteps>
struct WideChunk {
  static constexpr unsigned kWords = F::kCode == Code::nibble ? 2 : 4;
  static constexpr unsigned kScales = kSteps / kScaleSteps;
  static constexpr unsigned kTiles = kRows == SlabRows::gated ? 2 : 1;
  uint4 words[kTiles][kWords];
  RawScale<F> scales[2][kScales];  // of a thread's two rows
};

template <class F, SlabRows kRows, unsigned kScaleSteps = F::kScaleSteps>
struct WideCodes {
  using Chunk = WideChunk<F, kRows, kScaleSteps>;
  unsigned lane, group_shift;
  float offset;
  unsigned half;

  // first, second: the tile's chunk twice, or gate's and up's.
  __device__ void fetch(const unsigned char* first, const unsigned char* second, Chunk& to) const {
#pragma unroll
    for (unsigned i = 0; i < Chunk::kWords; ++i) {
      to.words[0][i] = reinterpret_cast<const uint4*>(first)[i * 32 + lane];
      if constexpr (kRows == SlabRows::gated)
        to.words[1][i] = reinterpret_cast<const uint4*>(second)[i * 32 + lane];
    }
    const unsigned row = lane / 4 + 8 * half_of<0>(), other = lane / 4 + 8 * half_of<1>();
#pragma unroll
    for (unsigned i = 0; i < Chunk::kScales; ++i) {
      const unsigned at = codes_bytes(F::kCode) +
                          (i * kScaleSteps * 16 >> group_shift) * (kTileRows * F::kRowBytes);
      to.scales[0][i] = fetch_scale<F>(first + at + row * F::kRowBytes);
      if constexpr (kRows != SlabRows::spread)
        to.scales[1][i] = fetch_scale<F>(second + at + other * F::kRowBytes);
    }
  }

  __device__ void decode(const Chunk& chunk, unsigned step, std::uint32_t (&a)[4]) const {
    decode_row<0>(chunk, step, a[0], a[2]);
    if constexpr (kRows == SlabRows::spread) {
      asm("" : "=r"(a[1]), "=r"(a[3]));  // what is there: rows of which nothing is stored
    } else {
      decode_row<1>(chunk, step, a[1], a[3]);
    }
  }

 private:
  // Of its tile, that a thread's row kRow is in.
  template <int kRow>
  __device__ unsigned half_of() const {
    return kRows == SlabRows::whole ? kRow : half;
  }
  template <int kRow>
  __device__ void decode_row(const Chunk& chunk,
                             unsigned step,
                             std::uint32_t& first,
                             std::uint32_t& last) const {
    const RowScale scale = scale_of<F>(chunk.scales[kRow][step / kScaleSteps], offset);
    const auto& words = chunk.words[kRows == SlabRows::gated ? kRow : 0];
    if constexpr (F::kCode == Code::nibble) {
      decode_nibble_row<F>(word_of(words[step / 4], step % 4), half_of<kRow>(), scale, offset,
                           first, last);
    } else {
      const uint4 two = words[step / 2];
      decode_byte_row<F>(step % 2 ? uint2{two.z, two.w} : uint2{two.x, two.y}, half_of<kRow>(),
                         scale, offset, first, last);
    }
  }
  __device__ static std::uint32_t word_of(const uint4& four, unsigned i) {
    return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w;
  }
};

// launch.operator()<F>() of a quantized weight's format.
template <Code kCode, class Launch>
auto with_format(const Weight& format, const Launch& launch) {
  switch (format.scale) {
    case ScaleKind::f32:
      return format.has_bias ? launch.template operator()<Format<kCode, ScaleKind::f32, true>>()
                             : launch.template operator()<Format<kCode, ScaleKind::f32, false>>();
    case ScaleKind::f16:
      return format.has_bias ? launch.template operator()<Format<kCode, ScaleKind::f16, true>>()
                             : launch.template operator()<Format<kCode, ScaleKind::f16, false>>();
    case ScaleKind::bf16:
      break;
  }
  return launch.template operator()<Format<kCode, ScaleKind::bf16, true>>();
}

}  // namespace kvasir::backend::cuda
