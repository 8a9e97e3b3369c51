// GGUF Q6_K: 256 elements in groups of 16: 128 bytes of low halves, 64 bytes of high bit pairs, 16
// signed scales, an f16 factor; each code + 32. A half of 128 elements has 64 bytes of low halves
// (byte i: elements i and i + 64) and 32 bytes of pairs (byte i: elements i, i + 32, i + 64, i +
// 96, from the lowest up).
#pragma once

#include "codec/detail/block_bytes.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

struct Q6_K {
  static constexpr std::string_view kName = "q6_k";
  static constexpr std::size_t kBlock = 256, kBlockBytes = 210, kGroup = 16;
  static constexpr int kGgufType = 14, kBits = 6;
  static constexpr bool kQuantized = true, kSigned = true, kHasBias = false;

  static void unpack(const RowPlanes& row,
                     std::size_t b,
                     std::int16_t* codes,
                     float* scales,
                     float* /*biases*/) noexcept {
    const std::byte* const block = row.codes + b * kBlockBytes;
    const float scale = f16_at(block + 208);
    for (std::size_t g = 0; g < 16; ++g) {
      scales[g] = scale * static_cast<float>(static_cast<std::int8_t>(block[192 + g]));
    }
    for (std::size_t i = 0; i < kBlock; ++i) {
      const std::size_t half = i / 128, j = i % 128;
      const std::byte* const lows = block + half * 64;
      const int low = j < 64 ? low_nibble(lows, j) : high_nibble(lows, j - 64);
      const int high = (byte_at(block + 128 + half * 32, j % 32) >> (j / 32 * 2)) & 3;
      codes[i] = static_cast<std::int16_t>((low | high << 4) - 32);
    }
  }
};

}  // namespace kvasir::codec
