// GGUF IQ3_S: 256 elements in groups of 32: an f16 factor; 64 bytes and 8 bytes of ninth bits:
// indices of grid points of four elements; 32 bytes of signs; four bits of scale a group. Elements
// are ±1, ±3 … ±15, that is 2 code - 15 with four bits a code.
#pragma once

#include "codec/detail/iq_grids.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

struct IQ3_S {
  static constexpr std::string_view kName = "iq3_s";
  static constexpr std::size_t kBlock = 256, kBlockBytes = 110, kGroup = 32;
  static constexpr int kGgufType = 21, kBits = 4;
  static constexpr bool kQuantized = true, kSigned = false, kHasBias = true;

  static void unpack(const RowPlanes& row,
                     std::size_t b,
                     std::int16_t* codes,
                     float* scales,
                     float* biases) noexcept {
    const std::byte* const block = row.codes + b * kBlockBytes;
    const float factor = f16_at(block);
    for (std::size_t g = 0; g < 8; ++g) {
      const int bits = g % 2 ? high_nibble(block + 106, g / 2) : low_nibble(block + 106, g / 2);
      const float scale = factor * static_cast<float>(1 + 2 * bits);
      scales[g] = 2.0f * scale;
      biases[g] = -15.0f * scale;
    }
    for (std::size_t i = 0; i < kBlock; ++i) {
      const std::size_t point = i / 4;
      const int ninth = (byte_at(block + 66, point / 8) >> (point % 8)) & 1;
      const unsigned grid =
          kIq3SGrid[static_cast<std::size_t>(byte_at(block + 2, point) | ninth << 8)];
      const int index = static_cast<int>((grid >> (4 * (i % 4))) & 7u);
      const bool is_negative = byte_at(block + 74, i / 8) >> (i % 8) & 1;
      codes[i] = static_cast<std::int16_t>(is_negative ? 7 - index : 8 + index);
    }
  }
};

}  // namespace kvasir::codec
