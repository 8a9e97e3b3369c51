// GGUF Q5_K: as Q4_K, with 32 bytes of fifth bits before the codes: bit g of byte i belongs to
// element i of group g.
#pragma once

#include "codec/detail/k_scales.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

struct Q5_K {
  static constexpr std::string_view kName = "q5_k";
  static constexpr std::size_t kBlock = 256, kBlockBytes = 176, kGroup = 32;
  static constexpr int kGgufType = 13, kBits = 5;
  static constexpr bool kQuantized = true, kSigned = false, kHasBias = true;

  static void unpack(const RowPlanes& row,
                     std::size_t b,
                     std::int16_t* codes,
                     float* scales,
                     float* biases) noexcept {
    const std::byte* const block = row.codes + b * kBlockBytes;
    unpack_k_scales(block + 4, f16_at(block), f16_at(block + 2), scales, biases);
    for (std::size_t i = 0; i < 128; ++i) {
      const std::size_t first = i / 32 * 64 + i % 32, group = i / 32 * 2;
      const int fifth = byte_at(block + 16, i % 32) >> group;
      codes[first] = static_cast<std::int16_t>(low_nibble(block + 48, i) | (fifth & 1) << 4);
      codes[first + 32] =
          static_cast<std::int16_t>(high_nibble(block + 48, i) | (fifth >> 1 & 1) << 4);
    }
  }
};

}  // namespace kvasir::codec
