// GGUF IQ2_XXS: 256 elements in groups of 32: an f16 factor, then two u32 a group: four points of
// the grid, a byte each; four times seven bits of signs and four of scale.
#pragma once

#include "codec/detail/iq_grids.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

struct IQ2_XXS {
  static constexpr std::string_view kName = "iq2_xxs";
  static constexpr std::size_t kBlock = 256, kBlockBytes = 66, kGroup = 32;
  static constexpr int kGgufType = 16, kBits = 7;
  static constexpr bool kQuantized = true, kSigned = true, kHasBias = false;

  static void unpack(const RowPlanes& row,
                     std::size_t b,
                     std::int16_t* codes,
                     float* scales,
                     float* /*biases*/) noexcept {
    const std::byte* const block = row.codes + b * kBlockBytes;
    const float factor = f16_at(block);
    for (std::size_t g = 0; g < 8; ++g) {
      const std::byte* const points = block + 2 + 8 * g;
      const std::uint32_t bits = u32_at(points + 4);
      scales[g] = factor * (0.5f + static_cast<float>(bits >> 28)) * 0.25f;
      for (std::size_t l = 0; l < 4; ++l) {
        put_iq2_point(kIq2XxsGrid[static_cast<std::size_t>(byte_at(points, l))],
                      even_signs((bits >> (7 * l)) & 127u), codes + 32 * g + 8 * l);
      }
    }
  }
};

}  // namespace kvasir::codec
