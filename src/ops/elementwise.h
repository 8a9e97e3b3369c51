// Element-wise ops on f32 matrices.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/mat_view.h"

namespace kvasir::ops {

// gelu: with erf; sigmoid: an output gate (MOD-40); identity: a plain product (MOD-33).
// clamped_swiglu (MOD-34): g · σ(1.702 g) · (u + 1) with g = min(gate, limit), u = clamp(up,
// ±limit).
enum class Activation : std::uint8_t { silu, gelu, gelu_tanh, sigmoid, identity, clamped_swiglu };

struct ActMulArgs {   // out = act(gate) ⊙ up
  ConstMatView gate;  // [n_rows, n_cols]
  ConstMatView up;    // stride 0: one row for all
  Activation activation = Activation::silu;
  float limit = 0.0f;  // of clamped_swiglu, > 0
  MatView out;         // may be gate itself
};

struct GateRowsArgs {  // x[r] = x[r] · sigmoid(gate[r]): a shared expert's gate (MOD-19)
  MatView x;           // [n_rows, n_cols]
  ConstMatView gate;   // [n_rows, 1]
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
