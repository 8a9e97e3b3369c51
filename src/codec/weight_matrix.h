// WeightMatrix: a view of a stored weight [n_out, n_in] in a file's own bytes (mmapped), any codec.
// Input of repacking.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/weight_type.h"

namespace kvasir::codec {

struct WeightMatrix {
  WeightType type;
  std::uint32_t n_out = 0;
  std::uint32_t n_in = 0;         // a multiple of the type's block
  RowPlanes planes;               // of row 0
  std::size_t codes_stride = 0;   // bytes from one row to the next; 0: columns
  std::size_t scales_stride = 0;  // same for scales and biases (planar types)
  // Consecutive rows that share a row of scales (F8: 128), and which of them row 0 is.
  std::uint32_t rows_per_scale = 1;
  std::uint32_t scale_phase = 0;

  RowPlanes row(std::size_t r) const noexcept {
    RowPlanes p = planes;
    p.codes += r * codes_stride;
    p.row += static_cast<std::uint32_t>(r);
    const std::size_t scale_row = (scale_phase + r) / rows_per_scale;
    if (p.scales) p.scales += scale_row * scales_stride;
    if (p.biases) p.biases += scale_row * scales_stride;
    return p;
  }
  // Rows [begin, begin + count): a fused projection's part, one expert of a stack.
  WeightMatrix rows(std::uint32_t begin, std::uint32_t count) const noexcept {
    WeightMatrix m = *this;
    m.planes = row(begin);
    m.n_out = count;
    m.scale_phase = static_cast<std::uint32_t>((std::size_t{scale_phase} + begin) % rows_per_scale);
    return m;
  }
  // Rows first, first + step, …: a part of a projection whose rows alternate (gpt-oss's gate and
  // up). Only where rows are runs of bytes with scales of their own.
  WeightMatrix every(std::uint32_t step, std::uint32_t first) const noexcept {
    WeightMatrix m = rows(first, (n_out - first + step - 1) / step);
    m.codes_stride *= step;
    m.scales_stride *= step;
    return m;
  }
  // Of one row's codes, of its scales (and as many of its biases); not for columns.
  std::size_t row_bytes() const noexcept {
    return n_in / info(type).block * info(type).block_bytes;
  }
  std::size_t scale_row_bytes() const noexcept {
    const WeightTypeInfo& facts = info(type);
    if (facts.scale_plane == ScalePlane::none) return 0;
    const bool is_byte = facts.scale_plane != ScalePlane::floats;
    return (n_in + facts.group - 1) / facts.group *
           (is_byte                               ? 1
            : planes.scale_type == ScaleType::f32 ? 4
                                                  : 2);
  }
  void decode(std::size_t r, float* out) const noexcept { decode_row(type, row(r), n_in, out); }
};

}  // namespace kvasir::codec
