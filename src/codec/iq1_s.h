// GGUF IQ1_S: 256 elements in groups of 32: an f16 factor, a byte for every eight elements, then a
// u16 a group: three more bits of each of the four grid points, three of scale, and which way all
// elements are moved by an eighth.
#pragma once

#include "codec/detail/iq_grids.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

struct IQ1_S {
  static constexpr std::string_view kName = "iq1_s";
  static constexpr std::size_t kBlock = 256, kBlockBytes = 50, kGroup = 32;
  static constexpr int kGgufType = 19, kBits = 2;
  static constexpr bool kQuantized = true, kSigned = false, kHasBias = true;

  static void unpack(const RowPlanes& row,
                     std::size_t b,
                     std::int16_t* codes,
                     float* scales,
                     float* biases) noexcept {
    const std::byte* const block = row.codes + b * kBlockBytes;
    const float factor = f16_at(block);
    for (std::size_t g = 0; g < 8; ++g) {
      const unsigned bits = u16_at(block + 34 + 2 * g);
      const float scale = factor * static_cast<float>(2 * ((bits >> 12) & 7u) + 1);
      scales[g] = scale;
      biases[g] = scale * (bits & 0x8000u ? -1.125f : -0.875f);
      for (std::size_t l = 0; l < 4; ++l) {
        const auto low = static_cast<std::size_t>(byte_at(block + 2, 4 * g + l));
        const std::uint16_t point = kIq1Grid[low | ((bits >> (3 * l)) & 7u) << 8];
        for (unsigned k = 0; k < 8; ++k)
          codes[32 * g + 8 * l + k] = static_cast<std::int16_t>(iq1_trit(point, k) + 1);
      }
    }
  }
};

}  // namespace kvasir::codec
