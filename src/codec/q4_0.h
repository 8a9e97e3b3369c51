// GGUF Q4_0: 32 elements: scale f16, then 16 bytes; byte i holds elements i (low half) and i + 16,
// each code + 8.
#pragma once

#include "codec/detail/block_bytes.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

struct Q4_0 {
  static constexpr std::string_view kName = "q4_0";
  static constexpr std::size_t kBlock = 32, kBlockBytes = 18, kGroup = 32;
  static constexpr int kGgufType = 2, kBits = 4;
  static constexpr bool kQuantized = true, kSigned = true, kHasBias = false;

  static void unpack(const RowPlanes& row,
                     std::size_t b,
                     std::int16_t* codes,
                     float* scales,
                     float* /*biases*/) noexcept {
    const std::byte* const block = row.codes + b * kBlockBytes;
    scales[0] = f16_at(block);
    for (std::size_t i = 0; i < 16; ++i) {
      codes[i] = static_cast<std::int16_t>(low_nibble(block + 2, i) - 8);
      codes[i + 16] = static_cast<std::int16_t>(high_nibble(block + 2, i) - 8);
    }
  }
};

}  // namespace kvasir::codec
