// F8_E4M3 of safetensors: a byte an element, and where there are scales one for each 128 x 128
// elements (value = element * scale; the last ones of a row or column cover what is left).
#pragma once

#include "codec/detail/scale_planes.h"
#include "codec/detail/small_floats.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

struct F8_E4M3 {
  static constexpr std::string_view kName = "f8_e4m3";
  static constexpr std::size_t kBlock = 1, kBlockBytes = 1, kGroup = 128;
  static constexpr int kGgufType = -1;
  static constexpr bool kQuantized = false;
  static constexpr ScalePlane kScalePlane = ScalePlane::floats;
  static void decode_row(const RowPlanes& row, std::size_t n, float* out) noexcept {
    for (std::size_t i = 0; i < n; ++i) {
      const float value = e4m3_to_f32(row.codes[i]);
      out[i] = row.scales ? value * scale_at(row.scales, row.scale_type, i / kGroup) : value;
    }
  }
};

}  // namespace kvasir::codec
