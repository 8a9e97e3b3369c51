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
  std::size_t codes_stride = 0;   // bytes from one row to the next
  std::size_t scales_stride = 0;  // same for scales and biases (planar types)

  RowPlanes row(std::size_t r) const noexcept {
    RowPlanes p = planes;
    p.codes += r * codes_stride;
    if (p.scales) p.scales += r * scales_stride;
    if (p.biases) p.biases += r * scales_stride;
    return p;
  }
  // Rows [begin, begin + count): a fused projection's part, one expert of a stack.
  WeightMatrix rows(std::uint32_t begin, std::uint32_t count) const noexcept {
    WeightMatrix m = *this;
    m.planes = row(begin);
    m.n_out = count;
    return m;
  }
  void decode(std::size_t r, float* out) const noexcept { decode_row(type, row(r), n_in, out); }
};

}  // namespace kvasir::codec
