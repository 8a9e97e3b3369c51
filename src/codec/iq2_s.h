// GGUF IQ2_S: 256 elements in groups of 16: an f16 factor; for every eight elements a byte of the
// grid point's index and one of signs; two more index bits each, from the lowest up; then four bits
// of scale a group.
#pragma once

#include "codec/detail/iq_grids.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

struct IQ2_S {
  static constexpr std::string_view kName = "iq2_s";
  static constexpr std::size_t kBlock = 256, kBlockBytes = 82, kGroup = 16;
  static constexpr int kGgufType = 22, kBits = 7;
  static constexpr bool kQuantized = true, kSigned = true, kHasBias = false;

  static void unpack(const RowPlanes& row,
                     std::size_t b,
                     std::int16_t* codes,
                     float* scales,
                     float* /*biases*/) noexcept {
    const std::byte* const block = row.codes + b * kBlockBytes;
    const float factor = f16_at(block);
    for (std::size_t g = 0; g < 16; ++g) {
      const int scale = g % 2 ? high_nibble(block + 74, g / 2) : low_nibble(block + 74, g / 2);
      scales[g] = factor * (0.5f + static_cast<float>(scale)) * 0.25f;
    }
    for (std::size_t l = 0; l < 32; ++l) {
      const int high = (byte_at(block + 66, l / 4) >> (2 * (l % 4))) & 3;
      put_iq2_point(kIq2SGrid[static_cast<std::size_t>(byte_at(block + 2, l) | high << 8)],
                    static_cast<unsigned>(byte_at(block + 34, l)), codes + 8 * l);
    }
  }
};

}  // namespace kvasir::codec
