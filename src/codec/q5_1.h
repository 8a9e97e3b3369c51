// GGUF Q5_1: 32 elements: scale f16, bias f16, fifth bits (u32, bit i of element i), then 16 bytes
// as in Q4_1.
#pragma once

#include "codec/detail/block_bytes.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

struct Q5_1 {
  static constexpr std::string_view kName = "q5_1";
  static constexpr std::size_t kBlock = 32, kBlockBytes = 24, kGroup = 32;
  static constexpr int kGgufType = 7, kBits = 5;
  static constexpr bool kQuantized = true, kSigned = false, kHasBias = true;

  static void unpack(const RowPlanes& row,
                     std::size_t b,
                     std::int16_t* codes,
                     float* scales,
                     float* biases) noexcept {
    const std::byte* const block = row.codes + b * kBlockBytes;
    const std::uint32_t fifth = u32_at(block + 4);
    scales[0] = f16_at(block);
    biases[0] = f16_at(block + 2);
    for (std::size_t i = 0; i < 16; ++i) {
      codes[i] = static_cast<std::int16_t>(low_nibble(block + 8, i) |
                                           static_cast<int>((fifth >> i) & 1u) << 4);
      codes[i + 16] = static_cast<std::int16_t>(high_nibble(block + 8, i) |
                                                static_cast<int>((fifth >> (i + 16)) & 1u) << 4);
    }
  }
};

}  // namespace kvasir::codec
