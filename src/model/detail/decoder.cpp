#include "model/detail/decoder.h"

namespace kvasir::model {

LogitsView Decoder::forward(const StepBatch& batch) {
  embed(batch.tokens);
  for (std::size_t layer = 0; layer < config_.layers.size(); ++layer) {
    attention_block(layer, batch);
    feed_forward_block(layer);
  }
  return head(batch.wanted);
}

void Decoder::embed(std::span<const TokenId> tokens) {
  n_tokens_ = static_cast<std::uint32_t>(tokens.size());
  residual_ = scratch_.residual.rows(0, n_tokens_);
  branch_ = scratch_.branch.rows(0, n_tokens_);
  ops_.embed(device_, {.tokens = tokens,
                       .table = weights_.embedding.get(),
                       .scale = config_.embedding_scale,
                       .out = residual_});
}

void Decoder::attention_block(std::size_t layer, const StepBatch& batch) {
  const LayerSpec& spec = config_.layers[layer];
  const AttentionSpec& a = spec.attention;
  const LayerWeights& w = weights_.layers[layer];
  const KvLayerView& kv = batch.kv[layer];

  const MatView qkv = project_qkv(spec, w, normed_or_residual(w.attention_in));
  const MatView q = qkv.columns(0, a.q_width());
  const MatView k = qkv.columns(a.q_width(), a.kv_width());
  const MatView v = qkv.columns(a.q_width() + a.kv_width(), a.kv_width());
  norm_and_rotate(a, w.attention, q, k, batch.positions);

  const MatView attended = first_rows(scratch_.attended, a.q_width());
  ops_.kv_append(device_, {.k = k, .v = v, .kv = kv});
  ops_.attention(device_, {.q = q,
                           .kv = kv,
                           .n_heads = a.n_heads,
                           .scale = a.scale,
                           .softcap = a.softcap,
                           .sinks = nullptr,
                           .out = attended});
  linear(w.attention.out, attended, branch_);
  add_branch(w.attention_out);
}

void Decoder::feed_forward_block(std::size_t layer) {
  const LayerSpec& spec = config_.layers[layer];
  const LayerWeights& w = weights_.layers[layer];
  const ConstMatView in = normed_or_residual(w.mlp_in);
  if (spec.moe) {
    experts(*spec.moe, *w.moe, in, branch_);
  } else {
    gated_mlp(*w.mlp, spec.mlp.activation, spec.mlp.intermediate, in, branch_);
  }
  add_branch(w.mlp_out);
}

// Only the wanted rows pass the final norm and the head.
LogitsView Decoder::head(std::span<const std::uint32_t> wanted) {
  const auto n_wanted = static_cast<std::uint32_t>(wanted.size());
  if (n_wanted == 0) return {.data = nullptr, .n_rows = 0, .vocab = config_.vocab};
  const MatView rows = scratch_.wanted.rows(0, n_wanted);
  const MatView logits = scratch_.logits.rows(0, n_wanted);
  ops_.gather_rows(device_, {.x = residual_, .rows = wanted, .out = rows});
  rms_norm(weights_.norm, rows, rows);
  ops_.linear(device_, {.x = rows, .weight = &weights_.head(), .bias = nullptr, .out = logits});
  if (config_.logit_scale != 1.0f || config_.logit_softcap > 0.0f) {
    ops_.scale(device_,
               {.x = logits, .alpha = config_.logit_scale, .softcap = config_.logit_softcap});
  }
  return {.data = logits.data, .n_rows = n_wanted, .vocab = config_.vocab};
}

MatView Decoder::project_qkv(const LayerSpec& spec, const LayerWeights& w, ConstMatView in) {
  const MatView qkv = first_rows(scratch_.qkv, spec.attention.qkv_width());
  side_by_side(w.attention.qkv, in, qkv);
  return qkv;
}

void Decoder::norm_and_rotate(const AttentionSpec& a,
                              const AttentionWeights& w,
                              MatView q,
                              MatView k,
                              std::span<const std::uint32_t> positions) {
  if (a.qk_norm != QkNorm::none) {
    rms_norm(w.q_norm, q, q);
    rms_norm(w.k_norm, k, k);
  }
  if (!a.rope) return;
  rotate(a, q, positions);
  rotate(a, k, positions);
}

void Decoder::rotate(const AttentionSpec& a, MatView x, std::span<const std::uint32_t> positions) {
  const RopeTable& rope = ropes_[*a.rope];
  ops_.rope(device_, {.x = x,
                      .head_dim = a.head_dim,
                      .n_pairs = rope.n_pairs,
                      .interleaved = rope.interleaved,
                      .positions = positions,
                      .cos = rope.cos,
                      .sin = rope.sin});
}

void Decoder::gated_mlp(const MlpWeights& w,
                        ops::Activation activation,
                        std::uint32_t intermediate,
                        ConstMatView in,
                        MatView out) {
  const MatView gate_up = first_rows(scratch_.gate_up, 2 * intermediate);
  const MatView gate = gate_up.columns(0, intermediate);
  side_by_side(w.gate_up, in, gate_up);
  ops_.act_mul(device_, {.gate = gate,
                         .up = gate_up.columns(intermediate, intermediate),
                         .activation = activation,
                         .out = gate});
  linear(w.down, gate, out);
}

void Decoder::experts(const MoeSpec& moe, const MoeWeights& w, ConstMatView in, MatView out) {
  const MatView logits = first_rows(scratch_.router_logits, moe.n_experts);
  const std::size_t n_choices = std::size_t{n_tokens_} * moe.top_k;
  const std::span<std::uint32_t> chosen = scratch_.experts.first(n_choices);
  const std::span<float> weights = scratch_.expert_weights.first(n_choices);
  linear(w.router, in, logits);
  ops_.moe_route(device_,
                 {.logits = logits,
                  .score = moe.score,
                  .selection_bias = w.selection_bias.empty() ? nullptr : w.selection_bias.data(),
                  .top_k = moe.top_k,
                  .n_groups = moe.n_groups,
                  .topk_groups = moe.topk_groups,
                  .renormalize = moe.renormalize,
                  .scale = moe.scale,
                  .experts = chosen,
                  .weights = weights});
  ops_.moe_experts(device_, {.x = in,
                             .experts = chosen,
                             .weights = weights,
                             .top_k = moe.top_k,
                             .bank = w.bank,
                             .activation = moe.activation,
                             .scratch = scratch_.moe,
                             .out = out});
  if (!w.shared) return;
  const MatView shared = first_rows(scratch_.shared, config_.hidden);
  gated_mlp(*w.shared, moe.activation, moe.shared_intermediate, in, shared);
  ops_.add_scaled(device_, {.x = out, .y = shared, .alpha = 1.0f});
}

void Decoder::linear(const Linear& w, ConstMatView in, MatView out) {
  ops_.linear(device_, {.x = in,
                        .weight = w.weight.get(),
                        .bias = w.bias.empty() ? nullptr : w.bias.data(),
                        .out = out});
}

void Decoder::side_by_side(const SideBySide& parts, ConstMatView in, MatView out) {
  std::uint32_t column = 0;
  for (const Linear& part : parts) {
    linear(part, in, out.columns(column, part.weight->n_out()));
    column += part.weight->n_out();
  }
}

// One group is as wide as the weight: a whole row, or a head.
void Decoder::rms_norm(const Vector& weight, ConstMatView in, MatView out) {
  const auto group = static_cast<std::uint32_t>(weight.size());
  ops_.rms_norm(
      device_,
      {.x = in, .weight = weight.data(), .group = group, .eps = config_.norm_eps, .out = out});
}

// A block's input: the residual stream, normed where the family norms before its blocks.
ConstMatView Decoder::normed_or_residual(const Vector& weight) {
  if (weight.empty()) return residual_;
  const MatView normed = first_rows(scratch_.normed, config_.hidden);
  rms_norm(weight, residual_, normed);
  return normed;
}

// residual += scale · branch, normed first where the family norms after its blocks.
void Decoder::add_branch(const Vector& norm_after) {
  if (!norm_after.empty()) rms_norm(norm_after, branch_, branch_);
  ops_.add_scaled(device_, {.x = residual_, .y = branch_, .alpha = config_.residual_scale});
}

}  // namespace kvasir::model
