// MLX affine quantization: unsigned codes packed from the lowest bit up into little-endian u32
// words, with one scale and one bias per group of a row in planes of their own (f16, bf16 or f32):
// value = code * scale + bias.
#pragma once

#include "codec/detail/block_bytes.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

template <int kBitsOfCode, std::size_t kElements>
struct Affine {
  static_assert(kBitsOfCode == 4 || kBitsOfCode == 8);
  static_assert(kElements == 32 || kElements == 64 || kElements == 128);

  static constexpr std::string_view name() noexcept {
    if (kBitsOfCode == 4)
      return kElements == 32 ? "affine4g32" : kElements == 64 ? "affine4g64" : "affine4g128";
    return kElements == 32 ? "affine8g32" : kElements == 64 ? "affine8g64" : "affine8g128";
  }
  static constexpr std::string_view kName = name();
  static constexpr std::size_t kBlock = kElements, kBlockBytes = kElements * kBitsOfCode / 8,
                               kGroup = kElements;
  static constexpr int kGgufType = -1, kBits = kBitsOfCode;
  static constexpr bool kQuantized = true, kSigned = false, kHasBias = true;

  static void unpack(const RowPlanes& row,
                     std::size_t b,
                     std::int16_t* codes,
                     float* scales,
                     float* biases) noexcept {
    scales[0] = plane_at(row.scales, row.scale_type, b);
    biases[0] = plane_at(row.biases, row.scale_type, b);
    const std::byte* const block = row.codes + b * kBlockBytes;
    for (std::size_t i = 0; i < kBlockBytes; ++i) {
      if constexpr (kBits == 8) {
        codes[i] = static_cast<std::int16_t>(byte_at(block, i));
      } else {
        codes[2 * i] = static_cast<std::int16_t>(low_nibble(block, i));
        codes[2 * i + 1] = static_cast<std::int16_t>(high_nibble(block, i));
      }
    }
  }

 private:
  static float plane_at(const std::byte* plane, ScaleType type, std::size_t i) noexcept {
    switch (type) {
      case ScaleType::f32:
        return f32_at(plane + 4 * i);
      case ScaleType::f16:
        return f16_at(plane + 2 * i);
      case ScaleType::bf16:
        return bf16_at(plane + 2 * i);
    }
    return 0.0f;
  }
};

}  // namespace kvasir::codec
