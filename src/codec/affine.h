// MLX affine quantization: unsigned codes packed from the lowest bit up into little-endian u32
// words, with one scale and one bias per group of a row in planes of their own (f16, bf16 or f32):
// value = code * scale + bias. Eight codes of b bits take b bytes, across the borders of words.
#pragma once

#include <array>

#include "codec/detail/scale_planes.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

// "affine4g64"
template <int kBits, std::size_t kGroup>
inline constexpr auto kAffineName = [] {
  std::array<char, 10 + (kGroup > 99)> name{'a', 'f', 'f', 'i', 'n', 'e'};
  name[6] = static_cast<char>('0' + kBits);
  name[7] = 'g';
  std::size_t at = 8;
  if (kGroup > 99) name[at++] = static_cast<char>('0' + kGroup / 100);
  name[at] = static_cast<char>('0' + kGroup / 10 % 10);
  name[at + 1] = static_cast<char>('0' + kGroup % 10);
  return name;
}();

template <int kBitsOfCode, std::size_t kElements>
struct Affine {
  static_assert((kBitsOfCode >= 2 && kBitsOfCode <= 6) || kBitsOfCode == 8);
  static_assert(kElements == 32 || kElements == 64 || kElements == 128);

  static constexpr std::string_view kName{kAffineName<kBitsOfCode, kElements>.data(),
                                          kAffineName<kBitsOfCode, kElements>.size()};
  static constexpr std::size_t kBlock = kElements, kBlockBytes = kElements * kBitsOfCode / 8,
                               kGroup = kElements;
  static constexpr int kGgufType = -1, kBits = kBitsOfCode;
  static constexpr bool kQuantized = true, kSigned = false, kHasBias = true;
  static constexpr ScalePlane kScalePlane = ScalePlane::floats;

  static void unpack(const RowPlanes& row,
                     std::size_t b,
                     std::int16_t* codes,
                     float* scales,
                     float* biases) noexcept {
    scales[0] = scale_at(row.scales, row.scale_type, b);
    biases[0] = scale_at(row.biases, row.scale_type, b);
    const std::byte* pack = row.codes + b * kBlockBytes;
    for (std::size_t i = 0; i < kBlock; i += 8, pack += kBits) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, pack, kBits);
      for (std::size_t j = 0; j < 8; ++j, bits >>= kBits)
        codes[i + j] = static_cast<std::int16_t>(bits & ((1u << kBits) - 1));
    }
  }
};

}  // namespace kvasir::codec
