// The eight 6-bit scales and minima that Q4_K and Q5_K pack into 12 bytes: those of groups 0 to 3
// in the low six bits of bytes 0 to 3 and 4 to 7; of groups 4 to 7 the low four bits in bytes 8 to
// 11 (scale low, minimum high) and the two high bits atop bytes 0 to 3 (scales) and 4 to 7
// (minima).
#pragma once

#include "codec/detail/block_bytes.h"

namespace kvasir::codec {

inline void unpack_k_scales(
    const std::byte* packed, float scale, float minimum, float* scales, float* biases) noexcept {
  for (std::size_t g = 0; g < 8; ++g) {
    int s = byte_at(packed, g % 4), m = byte_at(packed, 4 + g % 4);
    if (g < 4) {
      s &= 63;
      m &= 63;
    } else {
      s = low_nibble(packed, g + 4) | (s >> 6) << 4;
      m = high_nibble(packed, g + 4) | (m >> 6) << 4;
    }
    scales[g] = scale * static_cast<float>(s);
    biases[g] = -(minimum * static_cast<float>(m));
  }
}

}  // namespace kvasir::codec
