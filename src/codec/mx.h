// Floats of 4 and 8 bits in groups with a scale byte each, in planes of their own: MLX's modes
// mxfp4, mxfp8 and nvfp4, and the experts of gpt-oss (mxfp4). E2M1 elements lie two a byte, the
// first in the low half; codes are them doubled. Scales: E8M0 (mx), E4M3 times the matrix's own
// factor (nvfp4).
#pragma once

#include "codec/detail/block_bytes.h"
#include "codec/detail/small_floats.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

template <std::size_t kElements>
struct PlanarFp4 {
  static_assert(kElements == 32 || kElements == 16);
  static constexpr bool kIsNv = kElements == 16;
  static constexpr std::string_view kName = kIsNv ? "nvfp4g16" : "mxfp4g32";
  static constexpr std::size_t kBlock = kElements, kBlockBytes = kElements / 2, kGroup = kElements;
  static constexpr int kGgufType = -1, kBits = 5;
  static constexpr bool kQuantized = true, kSigned = true, kHasBias = false;
  static constexpr ScalePlane kScalePlane = kIsNv ? ScalePlane::e4m3 : ScalePlane::e8m0;

  static void unpack(const RowPlanes& row,
                     std::size_t b,
                     std::int16_t* codes,
                     float* scales,
                     float* /*biases*/) noexcept {
    scales[0] =
        kIsNv ? 0.5f * (e4m3_to_f32(row.scales[b]) * row.factor) : half_of_e8m0(row.scales[b]);
    const std::byte* const block = row.codes + b * kBlockBytes;
    for (std::size_t i = 0; i < kBlockBytes; ++i) {
      codes[2 * i] = kTwiceE2M1[static_cast<std::size_t>(low_nibble(block, i))];
      codes[2 * i + 1] = kTwiceE2M1[static_cast<std::size_t>(high_nibble(block, i))];
    }
  }
};

using Mxfp4G32 = PlanarFp4<32>;
using Nvfp4G16 = PlanarFp4<16>;

// E4M3 elements: no integers of 8 bits, so backends see floats (of 4 significant bits: exact in
// bf16, as powers of two times them are).
struct Mxfp8G32 {
  static constexpr std::string_view kName = "mxfp8g32";
  static constexpr std::size_t kBlock = 32, kBlockBytes = 32, kGroup = 32;
  static constexpr int kGgufType = -1;
  static constexpr bool kQuantized = false;
  static constexpr ScalePlane kScalePlane = ScalePlane::e8m0;
  static void decode_row(const RowPlanes& row, std::size_t n, float* out) noexcept {
    for (std::size_t i = 0; i < n; ++i)
      out[i] = e4m3_to_f32(row.codes[i]) * (2.0f * half_of_e8m0(row.scales[i / kGroup]));
  }
};

}  // namespace kvasir::codec
