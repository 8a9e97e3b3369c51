// linear: out = x · Wᵀ + bias. One order of additions over K for every number of rows
// (docs/numerics.md).
#pragma once

#include "ops/device.h"
#include "tensor/mat_view.h"

namespace kvasir::ops {

struct LinearArgs {
  ConstMatView x;                        // [n_rows, n_in]
  const PackedMatrix* weight = nullptr;  // [n_out, n_in]
  const float* bias = nullptr;           // [n_out] or null, added in f32 after the product
  MatView out;                           // [n_rows, n_out]
};

}  // namespace kvasir::ops
