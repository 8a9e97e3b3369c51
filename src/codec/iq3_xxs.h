// GGUF IQ3_XXS: 256 elements in groups of 32: an f16 factor, a byte (point of the grid) for every
// four elements, then a u32 a group: four times seven bits of signs and four of scale.
#pragma once

#include "codec/detail/iq_grids.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

struct IQ3_XXS {
  static constexpr std::string_view kName = "iq3_xxs";
  static constexpr std::size_t kBlock = 256, kBlockBytes = 98, kGroup = 32;
  static constexpr int kGgufType = 18, kBits = 7;
  static constexpr bool kQuantized = true, kSigned = true, kHasBias = false;

  static void unpack(const RowPlanes& row,
                     std::size_t b,
                     std::int16_t* codes,
                     float* scales,
                     float* /*biases*/) noexcept {
    const std::byte* const block = row.codes + b * kBlockBytes;
    const float factor = f16_at(block);
    for (std::size_t g = 0; g < 8; ++g) {
      const std::uint32_t bits = u32_at(block + 66 + 4 * g);
      scales[g] = factor * (0.5f + static_cast<float>(bits >> 28)) * 0.5f;
      for (std::size_t i = 0; i < 32; ++i) {
        const unsigned point =
            kIq3XxsGrid[static_cast<std::size_t>(byte_at(block + 2, 8 * g + i / 4))];
        const int magnitude = kIq3XxsMagnitudes[(point >> (4 * (i % 4))) & 7u];
        const unsigned signs = even_signs((bits >> (7 * (i / 8))) & 127u);
        codes[32 * g + i] =
            static_cast<std::int16_t>(signs >> (i % 8) & 1u ? -magnitude : magnitude);
      }
    }
  }
};

}  // namespace kvasir::codec
