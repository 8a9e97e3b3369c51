// GGUF MXFP4: 32 elements: an E8M0 scale, then 16 bytes of E2M1; byte i holds elements i (low half)
// and i + 16. Codes are the elements doubled, scales halved.
#pragma once

#include "codec/detail/block_bytes.h"
#include "codec/detail/small_floats.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

struct MXFP4 {
  static constexpr std::string_view kName = "mxfp4";
  static constexpr std::size_t kBlock = 32, kBlockBytes = 17, kGroup = 32;
  static constexpr int kGgufType = 39, kBits = 5;
  static constexpr bool kQuantized = true, kSigned = true, kHasBias = false;

  static void unpack(const RowPlanes& row,
                     std::size_t b,
                     std::int16_t* codes,
                     float* scales,
                     float* /*biases*/) noexcept {
    const std::byte* const block = row.codes + b * kBlockBytes;
    scales[0] = half_of_e8m0(block[0]);
    for (std::size_t i = 0; i < 16; ++i) {
      codes[i] = kTwiceE2M1[static_cast<std::size_t>(low_nibble(block + 1, i))];
      codes[i + 16] = kTwiceE2M1[static_cast<std::size_t>(high_nibble(block + 1, i))];
    }
  }
};

}  // namespace kvasir::codec
