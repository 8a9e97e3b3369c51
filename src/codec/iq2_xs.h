// GGUF IQ2_XS: 256 elements in groups of 16: an f16 factor, a u16 for every eight elements (nine
// bits: point of the grid, seven: signs), then four bits of scale a group.
#pragma once

#include "codec/detail/iq_grids.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

struct IQ2_XS {
  static constexpr std::string_view kName = "iq2_xs";
  static constexpr std::size_t kBlock = 256, kBlockBytes = 74, kGroup = 16;
  static constexpr int kGgufType = 17, kBits = 7;
  static constexpr bool kQuantized = true, kSigned = true, kHasBias = false;

  static void unpack(const RowPlanes& row,
                     std::size_t b,
                     std::int16_t* codes,
                     float* scales,
                     float* /*biases*/) noexcept {
    const std::byte* const block = row.codes + b * kBlockBytes;
    const float factor = f16_at(block);
    for (std::size_t g = 0; g < 16; ++g) {
      const int scale = g % 2 ? high_nibble(block + 66, g / 2) : low_nibble(block + 66, g / 2);
      scales[g] = factor * (0.5f + static_cast<float>(scale)) * 0.25f;
    }
    for (std::size_t l = 0; l < 32; ++l) {
      const unsigned bits = u16_at(block + 2 + 2 * l);
      put_iq2_point(kIq2XsGrid[bits & 511u], even_signs(bits >> 9), codes + 8 * l);
    }
  }
};

}  // namespace kvasir::codec
