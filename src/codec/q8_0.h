// GGUF Q8_0: 32 elements: scale f16, then 32 signed bytes.
#pragma once

#include "codec/detail/block_bytes.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

struct Q8_0 {
  static constexpr std::string_view kName = "q8_0";
  static constexpr std::size_t kBlock = 32, kBlockBytes = 34, kGroup = 32;
  static constexpr int kGgufType = 8, kBits = 8;
  static constexpr bool kQuantized = true, kSigned = true, kHasBias = false;

  static void unpack(const RowPlanes& row,
                     std::size_t b,
                     std::int16_t* codes,
                     float* scales,
                     float* /*biases*/) noexcept {
    const std::byte* const block = row.codes + b * kBlockBytes;
    scales[0] = f16_at(block);
    for (std::size_t i = 0; i < kBlock; ++i) codes[i] = static_cast<std::int8_t>(block[2 + i]);
  }
};

}  // namespace kvasir::codec
