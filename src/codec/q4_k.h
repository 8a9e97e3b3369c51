// GGUF Q4_K: 256 elements in groups of 32: f16 factors of scales and minima, 12 bytes of 6-bit
// scales and minima, then 128 bytes; each 32 bytes hold two groups, the first in the low halves.
#pragma once

#include "codec/detail/k_scales.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

struct Q4_K {
  static constexpr std::string_view kName = "q4_k";
  static constexpr std::size_t kBlock = 256, kBlockBytes = 144, kGroup = 32;
  static constexpr int kGgufType = 12, kBits = 4;
  static constexpr bool kQuantized = true, kSigned = false, kHasBias = true;

  static void unpack(const RowPlanes& row,
                     std::size_t b,
                     std::int16_t* codes,
                     float* scales,
                     float* biases) noexcept {
    const std::byte* const block = row.codes + b * kBlockBytes;
    unpack_k_scales(block + 4, f16_at(block), f16_at(block + 2), scales, biases);
    for (std::size_t i = 0; i < 128; ++i) {
      const std::size_t first = i / 32 * 64 + i % 32;
      codes[first] = static_cast<std::int16_t>(low_nibble(block + 16, i));
      codes[first + 32] = static_cast<std::int16_t>(high_nibble(block + 16, i));
    }
  }
};

}  // namespace kvasir::codec
