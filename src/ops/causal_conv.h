// causal_conv: depthwise causal convolution along each row's tokens, from the row's tail of last
// inputs, which it replaces: out[t][c] = act(Σ_j weight[j][c] · x[t − kernel + 1 + j][c] +
// bias[c]). Taps are added in ascending j, so any chunks of a row give the same bits. Gated delta
// layers use it on [q; k; v] with SiLU (MOD-41), lfm2 on B ⊙ x without (MOD-33).
#pragma once

#include "tensor/mat_view.h"
#include "tensor/recurrent_view.h"

namespace kvasir::ops {

struct CausalConvArgs {
  ConstMatView x;  // [n_tokens, n_channels]; each element is rounded to state.conv_type first
  const float* weight = nullptr;  // [conv_kernel, n_channels]: the last tap meets the token itself
  const float* bias = nullptr;    // [n_channels] or null
  bool silu = false;
  RecurrentLayerView state;  // reads and replaces the rows' conv tails
  MatView out;               // [n_tokens, n_channels], not x; data null: only the tails (a replay)
};

}  // namespace kvasir::ops
