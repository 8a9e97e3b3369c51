// block_attention: the block read (KV-32): every query of a row attends all its stored positions
// and the whole block of this step's keys and values, in the form that the layer stores, without a
// causal mask. The block takes reserved room behind the stored positions and is not appended: a
// caller that does not commit leaves the row as it was. A windowed layer shows the last `window`
// stored positions and the block. Numbers: ops/attention.h's, of a query that sees those keys.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "ops/device.h"
#include "tensor/kv_view.h"
#include "tensor/mat_view.h"

namespace kvasir::ops {

struct BlockAttentionArgs {
  ConstMatView q;  // [n_tokens, n_heads · head_dim], head h as in AttentionArgs
  ConstMatView k;  // [n_tokens, n_kv_heads · head_dim]: the rows' blocks
  ConstMatView v;  // same
  KvLayerView kv;  // rows name their tokens by first_token and n_new: queries and block alike
  std::uint32_t n_heads = 0;
  float scale = 1.0f;
  float softcap = 0.0f;
  const float* sinks = nullptr;  // [n_heads] or null
  MatView out;                   // [n_tokens, n_heads · head_dim]
};

// A row without stored positions: `cache is empty`. Before anything of a step is run.
Status check_block_read(const KvLayerView& kv);

// Composed of kv_append and attention; bits depend on the row alone.
void block_attention(Device& device, const BlockAttentionArgs& args) noexcept;

}  // namespace kvasir::ops
