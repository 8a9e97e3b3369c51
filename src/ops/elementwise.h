// Element-wise ops on f32 matrices.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/mat_view.h"

namespace kvasir::ops {

enum class Activation : std::uint8_t { silu, gelu, gelu_tanh };  // gelu: with erf

struct ActMulArgs {   // out = act(gate) ⊙ up
  ConstMatView gate;  // [n_rows, n_cols]
  ConstMatView up;
  Activation activation = Activation::silu;
  MatView out;  // may be gate itself
};

struct AddScaledArgs {  // x += y · alpha (the product rounded, then the sum)
  MatView x;            // [n_rows, n_cols]
  ConstMatView y;
  float alpha = 1.0f;
};

struct ScaleArgs {  // x = x · alpha; then, if softcap > 0, x = cap · tanh(x / cap)
  MatView x;
  float alpha = 1.0f;
  float softcap = 0.0f;
};

struct GatherRowsArgs {  // out[i] = x[rows[i]]
  ConstMatView x;
  std::span<const std::uint32_t> rows;
  MatView out;  // [rows.size(), n_cols]
};

}  // namespace kvasir::ops
