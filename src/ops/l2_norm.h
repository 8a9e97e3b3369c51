// l2_norm: per group of `group` columns, y = x · (scale / sqrt(Σ x² + eps)), in f32. The queries
// and keys of gated delta layers (MOD-41), whose eps is inside the sum.
#pragma once

#include <cstdint>

#include "tensor/mat_view.h"

namespace kvasir::ops {

struct L2NormArgs {
  ConstMatView x;           // [n_tokens, n_cols]
  std::uint32_t group = 0;  // divides n_cols
  float eps = 0.0f;
  float scale = 1.0f;
  MatView out;  // same shape as x; may be x itself
};

}  // namespace kvasir::ops
