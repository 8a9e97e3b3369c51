// 4-bit integers of GPTQ and AWQ checkpoints: value = (code - zero) * scale, that is code * scale +
// bias with the bias in f32, which is exact. The planes are those of the transposed weight and are
// read as they lie. codes u32: GPTQ [n_in/8, n_out], eight elements of a row a word; AWQ [n_in,
// n_out/8], eight rows a word. scales [n_in/group, n_out]; zeros (in `biases`) u32 [n_in/group,
// n_out/8]. From the lowest up a word holds rows 0 to 7 (GPTQ) or 0 2 4 6 1 3 5 7 (AWQ).
#pragma once

#include "codec/detail/scale_planes.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

template <bool kIsAwq, std::size_t kElements>
struct Columns4 {
  static_assert(kElements == 32 || kElements == 64 || kElements == 128);
  static constexpr std::string_view name() noexcept {
    if (kIsAwq) return kElements == 32 ? "awq4g32" : kElements == 64 ? "awq4g64" : "awq4g128";
    return kElements == 32 ? "gptq4g32" : kElements == 64 ? "gptq4g64" : "gptq4g128";
  }
  static constexpr std::string_view kName = name();
  static constexpr std::size_t kBlock = kElements, kBlockBytes = kElements / 2, kGroup = kElements;
  static constexpr int kGgufType = -1, kBits = 4;
  static constexpr bool kQuantized = true, kSigned = false, kHasBias = true;
  static constexpr ScalePlane kScalePlane = ScalePlane::columns;

  static void unpack(const RowPlanes& row,
                     std::size_t b,
                     std::int16_t* codes,
                     float* scales,
                     float* biases) noexcept {
    const ColumnLayout& layout = *row.columns;
    const std::size_t n_out = layout.n_out, r = row.row, first = b * kBlock;
    const std::size_t g = first / layout.group;
    const unsigned shift = shift_of(r);
    const unsigned zero =
        (u32_at(row.biases + 4 * (g * (n_out / 8) + r / 8)) >> shift) + layout.zero_offset;
    scales[0] = scale_at(row.scales, row.scale_type, g * n_out + r);
    biases[0] = -(static_cast<float>(zero & 15u) * scales[0]);
    for (std::size_t i = 0; i < kBlock; ++i) {
      const std::size_t k = first + i;
      const std::size_t word = kIsAwq ? k * (n_out / 8) + r / 8 : k / 8 * n_out + r;
      const unsigned at = kIsAwq ? shift : static_cast<unsigned>(4 * (k % 8));
      codes[i] = static_cast<std::int16_t>((u32_at(row.codes + 4 * word) >> at) & 15u);
    }
  }

 private:
  // Where row r's nibble lies in a word that holds eight rows.
  static unsigned shift_of(std::size_t r) noexcept {
    constexpr unsigned kAwqPlaces[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    return 4 * (kIsAwq ? kAwqPlaces[r % 8] : static_cast<unsigned>(r % 8));
  }
};

}  // namespace kvasir::codec
