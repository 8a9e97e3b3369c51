// Multi-head latent attention in absorbed form at every number of tokens (MOD-35): all heads attend
// the same latent rows; a key is a whole row, a value its first `rank` elements. latent_append
// writes this step's rows. The numbers are those of ops/attention.h with one key head: tiles of 64
// keys in ascending order, so block size, chunk, batch and threads change no bit. With selected
// positions a query's keys are those alone, and its tiles 64 consecutive ones of the selection: the
// same bits as without where the selection is everything.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/latent_view.h"
#include "tensor/mat_view.h"

namespace kvasir::ops {

struct LatentAppendArgs {
  ConstMatView latent;          // [n_tokens, rank], after its norm
  ConstMatView rope_key;        // [n_tokens, rope_dim], after rope
  ConstMatView index_key = {};  // [n_tokens, index_dim], after norm and rope; no columns: none
  LatentLayerView kv;           // rows name their tokens by first_token and n_new
};

struct LatentAttentionArgs {
  ConstMatView q_latent;  // [n_tokens, n_heads · rank]: of each head q_nope · W_uk (head_linear)
  // Of each head the roped part: columns [h · rope_step, h · rope_step + rope_dim), so that it may
  // stay where the projection of q left it.
  ConstMatView q_rope;
  std::uint32_t rope_step = 0;  // >= rope_dim
  LatentLayerView kv;
  std::uint32_t n_heads = 0;
  float scale = 1.0f;  // on q·k; yarn's mscale² included
  // [n_tokens, top_k] from index_select, or empty: every position up to the query's own.
  std::span<const std::uint32_t> selected;
  std::uint32_t top_k = 0;
  MatView out;  // [n_tokens, n_heads · rank]: still latent; head_linear with W_uv comes next
};

}  // namespace kvasir::ops
