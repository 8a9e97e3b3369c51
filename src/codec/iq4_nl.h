// GGUF IQ4_NL: 32 elements: scale f16, then 16 bytes; byte i holds the indices of elements i (low
// half) and i + 16 into sixteen unevenly spaced integers, which are the codes.
#pragma once

#include "codec/detail/iq4_values.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

struct IQ4_NL {
  static constexpr std::string_view kName = "iq4_nl";
  static constexpr std::size_t kBlock = 32, kBlockBytes = 18, kGroup = 32;
  static constexpr int kGgufType = 20, kBits = 8;
  static constexpr bool kQuantized = true, kSigned = true, kHasBias = false;

  static void unpack(const RowPlanes& row,
                     std::size_t b,
                     std::int16_t* codes,
                     float* scales,
                     float* /*biases*/) noexcept {
    const std::byte* const block = row.codes + b * kBlockBytes;
    scales[0] = f16_at(block);
    for (std::size_t i = 0; i < 16; ++i) {
      codes[i] = kIq4Values[static_cast<std::size_t>(low_nibble(block + 2, i))];
      codes[i + 16] = kIq4Values[static_cast<std::size_t>(high_nibble(block + 2, i))];
    }
  }
};

}  // namespace kvasir::codec
