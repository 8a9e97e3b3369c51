// GGUF IQ1_M: 256 elements in groups of 16: a byte for every eight elements, four more bits each
// (three: point of the grid; one: moved down or up by an eighth), four u16 with four scales of
// three bits each, from the lowest up, and in their top bits a quarter of the f16 factor. Codes are
// eighths.
#pragma once

#include "codec/detail/iq_grids.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

struct IQ1_M {
  static constexpr std::string_view kName = "iq1_m";
  static constexpr std::size_t kBlock = 256, kBlockBytes = 56, kGroup = 16;
  static constexpr int kGgufType = 29, kBits = 5;
  static constexpr bool kQuantized = true, kSigned = true, kHasBias = false;

  static void unpack(const RowPlanes& row,
                     std::size_t b,
                     std::int16_t* codes,
                     float* scales,
                     float* /*biases*/) noexcept {
    const std::byte* const block = row.codes + b * kBlockBytes;
    unsigned factor_bits = 0;
    for (unsigned i = 0; i < 4; ++i)
      factor_bits |= static_cast<unsigned>(u16_at(block + 48 + 2 * i) >> 12) << (4 * i);
    const float factor = to_f32(Float16{static_cast<std::uint16_t>(factor_bits)});
    for (std::size_t g = 0; g < 16; ++g) {
      const unsigned scale = (unsigned{u16_at(block + 48 + g / 4 * 2)} >> (3 * (g % 4))) & 7u;
      scales[g] = factor * static_cast<float>(2 * scale + 1) * 0.125f;
    }
    for (std::size_t l = 0; l < 32; ++l) {
      const int bits = l % 2 ? high_nibble(block + 32, l / 2) : low_nibble(block + 32, l / 2);
      const auto low = static_cast<unsigned>(byte_at(block, l));
      const std::uint16_t point = kIq1Grid[low | (static_cast<unsigned>(bits) & 7u) << 8];
      const int moved = bits & 8 ? -1 : 1;
      for (unsigned k = 0; k < 8; ++k)
        codes[8 * l + k] = static_cast<std::int16_t>(8 * iq1_trit(point, k) + moved);
    }
  }
};

}  // namespace kvasir::codec
