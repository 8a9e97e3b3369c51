// GGUF TQ1_0: 256 elements of -1, 0, 1: 48 bytes of five, 4 bytes of four, scale f16. A byte is a
// fraction of 256 in base 3, its first digit the first element. The first 32 bytes hold element i +
// 32 n as digit n of byte i, the next 16 go by 16, the last 4 by 4.
#pragma once

#include "codec/detail/block_bytes.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

struct TQ1_0 {
  static constexpr std::string_view kName = "tq1_0";
  static constexpr std::size_t kBlock = 256, kBlockBytes = 54, kGroup = 128;
  static constexpr int kGgufType = 34, kBits = 2;
  static constexpr bool kQuantized = true, kSigned = true, kHasBias = false;

  static void unpack(const RowPlanes& row,
                     std::size_t b,
                     std::int16_t* codes,
                     float* scales,
                     float* /*biases*/) noexcept {
    const std::byte* const block = row.codes + b * kBlockBytes;
    scales[0] = scales[1] = f16_at(block + 52);
    const auto put = [&](std::size_t first_byte, std::size_t n_bytes, std::size_t n_digits,
                         std::int16_t* to) {
      for (std::size_t i = 0; i < n_bytes; ++i) {
        int fraction = byte_at(block, first_byte + i);
        for (std::size_t n = 0; n < n_digits; ++n, fraction = (fraction * 3) & 255)
          to[n * n_bytes + i] = static_cast<std::int16_t>(((fraction * 3) >> 8) - 1);
      }
    };
    put(0, 32, 5, codes);
    put(32, 16, 5, codes + 160);
    put(48, 4, 4, codes + 240);
  }
};

}  // namespace kvasir::codec
