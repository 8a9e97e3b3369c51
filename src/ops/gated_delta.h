// The recurrence of gated delta layers (MOD-41; Yang et al., "Gated Delta Networks", 2024), a token
// at a time in order, which is its definition (MOD-42): per value head, S of [value_dim, key_dim],
//   S ← decay · S;  u = S k;  δ = (v − u) · beta;  S ← S + δ kᵀ;  out = S q.
// A row's bits depend on its state and tokens alone: chunks, batch and threads change nothing, and
// a replay of the first tokens from a saved state gives the state that feeding only them had given.
// delta_gates makes decay and beta.
#pragma once

#include "tensor/mat_view.h"
#include "tensor/recurrent_view.h"

namespace kvasir::ops {

struct GatedDeltaArgs {
  ConstMatView q;      // [n_tokens, n_key_heads · key_dim], after l2_norm with scale key_dim^-½
  ConstMatView k;      // same shape, after l2_norm; value head h reads key head h · Hk / Hv
  ConstMatView v;      // [n_tokens, n_value_heads · value_dim]
  ConstMatView decay;  // [n_tokens, n_value_heads]
  ConstMatView beta;   // same
  RecurrentLayerView state;  // reads and replaces the rows' delta states
  MatView out;  // [n_tokens, n_value_heads · value_dim]; data null: only the states (a replay)
};

struct DeltaGatesArgs {
  ConstMatView a;  // [n_tokens, n_value_heads]
  ConstMatView b;
  const float* a_log = nullptr;    // [n_value_heads]
  const float* dt_bias = nullptr;  // [n_value_heads]
  MatView decay;                   // exp(−exp(a_log) · softplus(a + dt_bias)); may be a
  MatView beta;                    // sigmoid(b); may be b
};

}  // namespace kvasir::ops
