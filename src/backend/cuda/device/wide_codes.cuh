// Quantized weights of wide products as one thread's operands.
#pragma once

#include "backend/cuda/device/decode.cuh"
#include "backend/cuda/device/wide_ring.cuh"

namespace kvasir::backend::cuda {

// Which packed tiles a warp's 16 rows come from. Whole: one. Gated: a half of gate's and one of
// up's. Spread: half a tile, and 8 rows of nothing: where few tiles are there, more warps decode.
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
template <class F>
struct WideChunk {
  static constexpr unsigned kWords = F::kCode == Code::nibble ? 2 : 4;
  static constexpr unsigned kScales = kSteps / F::kScaleSteps;
  uint4 words[kWords], others[kWords];
  RawScale<F> scales[2][kScales];  // of a thread's two rows
};

template <class F>
struct WideCodes {
  using Chunk = WideChunk<F>;
  unsigned lane, group_shift;
  float offset;
  bool is_gated, is_spread;
  unsigned half;

  // first, second: the tile's chunk twice, or gate's and up's.
  __device__ void fetch(const unsigned char* first, const unsigned char* second, Chunk& to) const {
#pragma unroll
    for (unsigned i = 0; i < Chunk::kWords; ++i) {
      to.words[i] = reinterpret_cast<const uint4*>(first)[i * 32 + lane];
      if (is_gated) to.others[i] = reinterpret_cast<const uint4*>(second)[i * 32 + lane];
    }
    const unsigned row = lane / 4 + 8 * half, other = is_gated ? row : row + 8;
#pragma unroll
    for (unsigned i = 0; i < Chunk::kScales; ++i) {
      const unsigned at = codes_bytes(F::kCode) +
                          (i * F::kScaleSteps * 16 >> group_shift) * (kTileRows * F::kRowBytes);
      to.scales[0][i] = fetch_scale<F>(first + at + row * F::kRowBytes);
      if (!is_spread) to.scales[1][i] = fetch_scale<F>(second + at + other * F::kRowBytes);
    }
  }

  // What was fetched, with the slab's rows where they belong.
  __device__ void prepare(Chunk& chunk) const {
#pragma unroll
    for (unsigned i = 0; i < Chunk::kWords; ++i) {
      if (is_gated) {
        mix(chunk.words[i], chunk.others[i]);
      } else if (half > 0) {
        chunk.words[i] = second_half(chunk.words[i]);
      }
    }
  }

  __device__ void decode(const Chunk& chunk, unsigned step, std::uint32_t* a) const {
    decode_row<0>(chunk, step, a);
    if (!is_spread) decode_row<1>(chunk, step, a);
  }

 private:
  template <int kRow>
  __device__ void decode_row(const Chunk& chunk, unsigned step, std::uint32_t* a) const {
    RowScales scales;
    set_scale<F>(scales, kRow, chunk.scales[kRow][step / F::kScaleSteps]);
    if constexpr (F::kCode == Code::nibble) {
      decode_nibble_row<F, kRow>(word_of(chunk.words[step / 4], step % 4), scales, offset, a);
    } else {
      const uint4 two = chunk.words[step / 2];
      decode_byte_row<F::kHasBias, kRow>(step % 2 ? two.z : two.x, step % 2 ? two.w : two.y, scales,
                                         offset, a);
    }
  }
  __device__ static std::uint32_t word_of(const uint4& four, unsigned i) {
    return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w;
  }
  // The rows of a tile's second half where the first's are.
  __device__ static uint4 second_half(const uint4& w) {
    constexpr unsigned kBits = F::kCode == Code::nibble ? 4 : 16;
    return {w.x >> kBits, w.y >> kBits, w.z >> kBits, w.w >> kBits};
  }
  // Rows of the first tile's half before those of the second's.
  __device__ void mix(uint4& words, const uint4& others) const {
    mix(words.x, others.x);
    mix(words.y, others.y);
    mix(words.z, others.z);
    mix(words.w, others.w);
  }
  __device__ void mix(std::uint32_t& word, std::uint32_t other) const {
    if constexpr (F::kCode == Code::nibble) {
      word = half == 0 ? (word & 0x0f0f0f0fu) | (other & 0x0f0f0f0fu) << 4
                       : (word >> 4 & 0x0f0f0f0fu) | (other & 0xf0f0f0f0u);
    } else {
      word = __byte_perm(word, other, half == 0 ? 0x5410 : 0x7632);
    }
  }
};

}  // namespace kvasir::backend::cuda
