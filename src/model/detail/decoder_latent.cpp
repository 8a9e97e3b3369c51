// Latent attention, absorbed at every number of tokens (MOD-35, 36): queries go into the latent,
// attend its rows there, and what they found comes out of it. DeepSeek-AI, "DeepSeek-V3", 2024;
// the sparse index: "DeepSeek-V3.2", 2025.
#include <algorithm>

#include "model/detail/decoder.h"

namespace kvasir::model {

void Decoder::latent_block(std::size_t layer, const StepBatch& batch) {
  const LatentAttentionSpec& a = *config_.layers[layer].latent;
  const LayerWeights& w = weights_.layers[layer];
  const LatentWeights& latent = *w.latent;
  const LatentLayerView& kv = batch.kv.latent[kv_entries_[layer]];
  const ConstMatView in = normed_or_residual(w.attention_in);

  const MatView q = latent_query(a, latent, in, batch.positions);
  append_latent(a, latent, in, batch.positions, kv);
  const std::span<const std::uint32_t> selected = select(a, latent, in, batch.positions, kv);

  const MatView q_latent = first_rows(scratch_.latent.q, a.latent_width());
  ops_.head_linear(device_, {.x = q,
                             .weights = latent.into_latent,
                             .x_step = a.q_head_dim(),
                             .out_step = a.kv_rank,
                             .out = q_latent});
  const MatView attended = first_rows(scratch_.attended, a.latent_width());
  ops_.latent_attention(device_, {.q_latent = q_latent,
                                  .q_rope = roped_part(a, q),
                                  .rope_step = a.q_head_dim(),
                                  .kv = kv,
                                  .n_heads = a.n_heads,
                                  .scale = a.scale,
                                  .selected = selected,
                                  .top_k = selected.empty() ? 0 : a.index->top_k,
                                  .out = attended});
  const MatView values = first_rows(scratch_.qkv, a.v_width());  // q is no longer needed
  ops_.head_linear(device_, {.x = attended,
                             .weights = latent.out_of_latent,
                             .x_step = a.kv_rank,
                             .out_step = a.v_dim,
                             .out = values});
  linear(latent.out, values, branch_);
  add_branch(w.attention_out);
}

// [n_tokens, q_width], roped; what it was made from stays in scratch for the index.
MatView Decoder::latent_query(const LatentAttentionSpec& a,
                              const LatentWeights& w,
                              ConstMatView in,
                              std::span<const std::uint32_t> positions) {
  const MatView q = first_rows(scratch_.qkv, a.q_width());
  if (a.q_rank) {
    const MatView down = first_rows(scratch_.latent.q_down, a.q_rank);
    linear(w.q_down, in, down);
    rms_norm(w.q_norm, down, down, a.norm_eps);
    linear(w.q, down, q);
  } else {
    linear(w.q, in, q);
  }
  rotate(a.rope, a.q_head_dim(), roped_part(a, q), positions);
  return q;
}

// The latent row of each token, and its index key where the layer has an index of its own.
void Decoder::append_latent(const LatentAttentionSpec& a,
                            const LatentWeights& w,
                            ConstMatView in,
                            std::span<const std::uint32_t> positions,
                            const LatentLayerView& kv) {
  const MatView row = first_rows(scratch_.latent.row, a.row_dim());
  const MatView latent = row.columns(0, a.kv_rank), rope_key = row.columns(a.kv_rank, a.rope_dim);
  linear(w.kv, in, row);
  rms_norm(w.kv_norm, latent, latent, a.norm_eps);
  rotate(a.rope, a.rope_dim, rope_key, positions);
  ops::LatentAppendArgs append{.latent = latent, .rope_key = rope_key, .kv = kv};
  if (w.index) {
    const MatView key = first_rows(scratch_.latent.index_key, a.index->dim);
    linear(w.index->k, in, key);
    ops_.layer_norm(device_, {.x = key,
                              .weight = w.index->k_norm.weight.data(),
                              .bias = w.index->k_norm.bias.data(),
                              .eps = a.norm_eps,
                              .out = key});
    rotate(a.rope, a.index->dim, key, positions);
    append.index_key = key;
  }
  ops_.latent_append(device_, append);
}

// The positions that each token attends; empty: every one up to its own. While none has more than
// top_k of them the choice is all, and the bits are those of attending all.
std::span<const std::uint32_t> Decoder::select(const LatentAttentionSpec& a,
                                               const LatentWeights& w,
                                               ConstMatView in,
                                               std::span<const std::uint32_t> positions,
                                               const LatentLayerView& kv) {
  if (!a.index || std::all_of(positions.begin(), positions.end(),
                              [&](std::uint32_t p) { return p < a.index->top_k; }))
    return {};
  const IndexSpec& index = *a.index;
  const auto selected = scratch_.latent.selected.first(std::size_t{n_tokens_} * index.top_k);
  if (index.is_shared) return selected;
  const MatView q = first_rows(scratch_.latent.index_q, index.n_heads * index.dim);
  const MatView weights = first_rows(scratch_.latent.index_weights, index.n_heads);
  linear(w.index->q, first_rows(scratch_.latent.q_down, a.q_rank), q);
  rotate(a.rope, index.dim, q, positions);
  linear(w.index->head_weights, in, weights);
  ops_.index_select(device_, {.q = q,
                              .weights = weights,
                              .kv = kv,
                              .n_heads = index.n_heads,
                              .top_k = index.top_k,
                              .selected = selected});
  return selected;
}

// From the first head's roped columns on; the heads' latent parts lie between.
MatView Decoder::roped_part(const LatentAttentionSpec& a, MatView q) {
  return q.columns(a.nope_dim, a.q_width() - a.nope_dim);
}

}  // namespace kvasir::model
