// Writing weights: f32 rows → the stored form of a type. For tools that make checkpoints; reading
// is weight_type.h's. Each encoder keeps the error of an element within a step of its group.
// Pure functions; any thread.
#pragma once

#include <cstddef>

#include "codec/weight_type.h"

namespace kvasir::codec {

// One row's planes, as RowPlanes reads them; scales and biases of affine types only, as bf16.
struct EncodedRow {
  std::byte* codes = nullptr;
  std::byte* scales = nullptr;
  std::byte* biases = nullptr;
};

// f32, f16, bf16, q8_0, q4_0, q4_1, affine{4,8}g{32,64,128}.
bool can_encode(WeightType type) noexcept;
// x: n finite values, n a multiple of the type's block. The type must be one that can be encoded.
void encode_row(WeightType type, const float* x, std::size_t n, const EncodedRow& to) noexcept;

}  // namespace kvasir::codec
