// Fused operations: what several ops of the table do one after another, as one entry that a backend
// may have a kernel for. Each defaults to the composition of the simple ones, whose bits a fused
// version gives; the composition is its test.
#pragma once

#include <cstdint>
#include <span>

#include "ops/attention.h"
#include "ops/device.h"
#include "ops/elementwise.h"
#include "tensor/mat_view.h"

namespace kvasir::ops {

struct LinearPart {
  const PackedMatrix* weight = nullptr;  // [n_out, n_in]
  const float* bias = nullptr;           // [n_out] or null
};

// Linears of one input, their outputs side by side in `out`.
struct LinearGroupArgs {
  ConstMatView x;                     // [n_rows, n_in]
  std::span<const LinearPart> parts;  // n_out of all of them together: out.n_cols
  MatView out;
};

// A gated block's first half: gate and up as a linear_group of x into gate_up, then gate =
// act(gate) ⊙ up.
struct GatedLinearArgs {
  ConstMatView x;
  std::span<const LinearPart> parts;  // gate, up; or one whose first half of rows is the gate
  Activation activation = Activation::silu;
  // [n_rows, 2 · ff]: its first half is the result; what is in the second is left open.
  MatView gate_up;
};

// A gated block: gated_linear, then down of its result. gate_up is scratch: what is in it
// afterwards is left open.
struct GatedMlpArgs {
  GatedLinearArgs gated;
  LinearPart down;  // [n_out, ff]
  MatView out;      // [n_rows, n_out]
};

// x += y · alpha, then out = rms_norm(x) over whole rows.
struct AddNormArgs {
  MatView x;  // [n_rows, n_cols]
  ConstMatView y;
  float alpha = 1.0f;
  const float* weight = nullptr;  // [n_cols]
  float eps = 0.0f;
  MatView out;  // not x
};

// Queries and keys on their way to attention: q = rms_norm(q), rope(q), k likewise, then kv_append
// of k and v.
struct QueryKeyArgs {
  MatView q;  // [n_tokens, n_heads · head_dim]
  MatView k;  // [n_tokens, n_kv_heads · head_dim]
  ConstMatView v;
  const float* q_norm = nullptr;           // [q_group] or null: no norm
  const float* k_norm = nullptr;           // [k_group] or null
  std::uint32_t q_group = 0, k_group = 0;  // as RmsNormArgs: a head, or the whole row
  float eps = 0.0f;
  std::uint32_t head_dim = 0;
  std::uint32_t n_pairs = 0;  // of rope; 0: none
  bool interleaved = false;
  std::span<const std::uint32_t> positions;
  const float* cos = nullptr;  // as RopeArgs
  const float* sin = nullptr;
  KvLayerView kv;
};

// query_key, then attention of its q to its keys and values. What is in q and k afterwards is left
// open.
struct PreparedAttentionArgs {
  QueryKeyArgs prepare;
  AttentionArgs attend;  // q and kv: prepare's
};

void linear_group_composed(Device& device, const LinearGroupArgs& args) noexcept;
void gated_linear_composed(Device& device, const GatedLinearArgs& args) noexcept;
void gated_mlp_composed(Device& device, const GatedMlpArgs& args) noexcept;
void add_norm_composed(Device& device, const AddNormArgs& args) noexcept;
void query_key_composed(Device& device, const QueryKeyArgs& args) noexcept;
void prepared_attention_composed(Device& device, const PreparedAttentionArgs& args) noexcept;

}  // namespace kvasir::ops
