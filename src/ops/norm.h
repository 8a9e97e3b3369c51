// rms_norm: per group of `group` columns, y = x / sqrt(mean(x²) + eps) · weight. One group is the
// whole row (layer norms) or one head (q/k norms). In f32. Zhang & Sennrich, "Root Mean Square
// Layer Normalization", 2019. layer_norm: the same with the mean taken off first.
#pragma once

#include <cstdint>

#include "tensor/mat_view.h"

namespace kvasir::ops {

struct RmsNormArgs {
  ConstMatView x;                 // [n_tokens, n_cols]
  const float* weight = nullptr;  // [group], a "+1" already added; null: no weight
  std::uint32_t group = 0;        // divides n_cols
  float eps = 0.0f;               // inside the root
  MatView out;                    // same shape as x; may be x itself
};

// Per row: y = (x − mean) / sqrt(mean((x − mean)²) + eps) · weight + bias, in f32. Ba et al.,
// "Layer Normalization", 2016.
struct LayerNormArgs {
  ConstMatView x;                 // [n_tokens, n_cols]
  const float* weight = nullptr;  // [n_cols]
  const float* bias = nullptr;    // [n_cols] or null
  float eps = 0.0f;               // inside the root
  MatView out;                    // same shape as x; may be x itself
};

}  // namespace kvasir::ops
