// GGUF TQ2_0: 256 elements of two bits, each code + 1: 64 bytes laid as in Q2_K, then the scale
// f16. Codes are -1, 0, 1; the fourth, 2, is possible.
#pragma once

#include "codec/detail/block_bytes.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

struct TQ2_0 {
  static constexpr std::string_view kName = "tq2_0";
  static constexpr std::size_t kBlock = 256, kBlockBytes = 66, kGroup = 128;
  static constexpr int kGgufType = 35, kBits = 3;
  static constexpr bool kQuantized = true, kSigned = true, kHasBias = false;

  static void unpack(const RowPlanes& row,
                     std::size_t b,
                     std::int16_t* codes,
                     float* scales,
                     float* /*biases*/) noexcept {
    const std::byte* const block = row.codes + b * kBlockBytes;
    scales[0] = scales[1] = f16_at(block + 64);
    for (std::size_t i = 0; i < kBlock; ++i) {
      const std::size_t half = i / 128, shift = i % 128 / 32 * 2;
      codes[i] = static_cast<std::int16_t>(((byte_at(block + half * 32, i % 32) >> shift) & 3) - 1);
    }
  }
};

}  // namespace kvasir::codec
