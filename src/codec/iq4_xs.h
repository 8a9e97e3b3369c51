// GGUF IQ4_XS: 256 elements in groups of 32: an f16 factor, a u16 with two high bits of each scale,
// 4 bytes with four low bits each (each scale + 32), then 16 bytes a group as in IQ4_NL.
#pragma once

#include "codec/detail/iq4_values.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

struct IQ4_XS {
  static constexpr std::string_view kName = "iq4_xs";
  static constexpr std::size_t kBlock = 256, kBlockBytes = 136, kGroup = 32;
  static constexpr int kGgufType = 23, kBits = 8;
  static constexpr bool kQuantized = true, kSigned = true, kHasBias = false;

  static void unpack(const RowPlanes& row,
                     std::size_t b,
                     std::int16_t* codes,
                     float* scales,
                     float* /*biases*/) noexcept {
    const std::byte* const block = row.codes + b * kBlockBytes;
    const unsigned high = u16_at(block + 2);
    const float factor = f16_at(block);
    for (std::size_t g = 0; g < 8; ++g) {
      const int low = g % 2 ? high_nibble(block + 4, g / 2) : low_nibble(block + 4, g / 2);
      const int scale = low | static_cast<int>((high >> (2 * g)) & 3u) << 4;
      scales[g] = factor * static_cast<float>(scale - 32);
      const std::byte* const indices = block + 8 + 16 * g;
      for (std::size_t i = 0; i < 16; ++i) {
        codes[32 * g + i] = kIq4Values[static_cast<std::size_t>(low_nibble(indices, i))];
        codes[32 * g + i + 16] = kIq4Values[static_cast<std::size_t>(high_nibble(indices, i))];
      }
    }
  }
};

}  // namespace kvasir::codec
