// GGUF Q8_K: 256 elements: scale f32, 256 signed bytes, 16 sums that nothing here needs.
#pragma once

#include "codec/detail/block_bytes.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

struct Q8_K {
  static constexpr std::string_view kName = "q8_k";
  static constexpr std::size_t kBlock = 256, kBlockBytes = 292, kGroup = 128;
  static constexpr int kGgufType = 15, kBits = 8;
  static constexpr bool kQuantized = true, kSigned = true, kHasBias = false;

  static void unpack(const RowPlanes& row,
                     std::size_t b,
                     std::int16_t* codes,
                     float* scales,
                     float* /*biases*/) noexcept {
    const std::byte* const block = row.codes + b * kBlockBytes;
    scales[0] = scales[1] = f32_at(block);
    for (std::size_t i = 0; i < kBlock; ++i) codes[i] = static_cast<std::int8_t>(block[4 + i]);
  }
};

}  // namespace kvasir::codec
