// GGUF Q3_K: 256 elements in groups of 16: 32 bytes of third bits, 64 bytes of low bits laid as in
// Q2_K, 12 bytes of 6-bit scales (each scale + 32), an f16 factor. Third bit of element i: bit i /
// 32 of byte i % 32; clear means code - 4. Scale g: four low bits in half g / 8 of byte g % 8, two
// high bits at 2 * (g / 4) of byte 8 + g % 4.
#pragma once

#include "codec/detail/block_bytes.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

struct Q3_K {
  static constexpr std::string_view kName = "q3_k";
  static constexpr std::size_t kBlock = 256, kBlockBytes = 110, kGroup = 16;
  static constexpr int kGgufType = 11, kBits = 3;
  static constexpr bool kQuantized = true, kSigned = true, kHasBias = false;

  static void unpack(const RowPlanes& row,
                     std::size_t b,
                     std::int16_t* codes,
                     float* scales,
                     float* /*biases*/) noexcept {
    const std::byte* const block = row.codes + b * kBlockBytes;
    const std::byte* const packed = block + 96;
    const float scale = f16_at(block + 108);
    for (std::size_t g = 0; g < 16; ++g) {
      const int low = g < 8 ? low_nibble(packed, g) : high_nibble(packed, g - 8);
      const int high = (byte_at(packed, 8 + g % 4) >> (g / 4 * 2)) & 3;
      scales[g] = scale * static_cast<float>((low | high << 4) - 32);
    }
    for (std::size_t i = 0; i < kBlock; ++i) {
      const std::size_t half = i / 128, shift = i % 128 / 32 * 2;
      const int third = (byte_at(block, i % 32) >> (i / 32)) & 1;
      codes[i] = static_cast<std::int16_t>(
          ((byte_at(block + 32 + half * 32, i % 32) >> shift) & 3) - (third ? 0 : 4));
    }
  }
};

}  // namespace kvasir::codec
