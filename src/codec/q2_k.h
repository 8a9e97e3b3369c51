// GGUF Q2_K: 256 elements in groups of 16: 16 bytes (low half: scale, high half: minimum), 64 bytes
// of codes, then f16 factors of scales and minima. Each half of 128 elements has 32 bytes of codes;
// byte i holds elements i, i + 32, i + 64 and i + 96 of its half, two bits each from the lowest up.
#pragma once

#include "codec/detail/block_bytes.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

struct Q2_K {
  static constexpr std::string_view kName = "q2_k";
  static constexpr std::size_t kBlock = 256, kBlockBytes = 84, kGroup = 16;
  static constexpr int kGgufType = 10, kBits = 2;
  static constexpr bool kQuantized = true, kSigned = false, kHasBias = true;

  static void unpack(const RowPlanes& row,
                     std::size_t b,
                     std::int16_t* codes,
                     float* scales,
                     float* biases) noexcept {
    const std::byte* const block = row.codes + b * kBlockBytes;
    const float scale = f16_at(block + 80), minimum = f16_at(block + 82);
    for (std::size_t g = 0; g < 16; ++g) {
      scales[g] = scale * static_cast<float>(low_nibble(block, g));
      biases[g] = -(minimum * static_cast<float>(high_nibble(block, g)));
    }
    for (std::size_t i = 0; i < kBlock; ++i) {
      const std::size_t half = i / 128, shift = i % 128 / 32 * 2;
      codes[i] = static_cast<std::int16_t>((byte_at(block + 16 + half * 32, i % 32) >> shift) & 3);
    }
  }
};

}  // namespace kvasir::codec
