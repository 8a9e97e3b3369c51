#include "model/detail/decoder.h"

#include <cmath>
#include <numbers>
#include <utility>

namespace kvasir::model {
namespace {

bool is_in_order(std::span<const std::uint32_t> rows) noexcept {
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i] != i) return false;
  return true;
}

}  // namespace

LogitsView Decoder::forward(const StepBatch& batch) {
  embed(batch.tokens);
  if (weights_.encoder_input) encode_input(*weights_.encoder_input, batch);
  if (weights_.per_layer_inputs) embed_per_layer(*weights_.per_layer_inputs, batch.tokens);
  note_tentative(batch.kv);
  for (std::size_t layer = 0; layer < config_.layers.size(); ++layer) {
    mixer_block(layer, batch);
    feed_forward_block(layer);
    per_layer_block(layer);
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
                       .picked = scratch_.picked.data(),
                       .out = residual_});
}

// What an encoder adds to its tokens' embeddings. Its rows begin at position 0; their keys and
// values need a place for one layer at a time.
void Decoder::encode_input(const EncoderInputWeights& w, const StepBatch& batch) {
  if (!w.token_type.empty()) {
    ops_.add_scaled(
        device_,
        {.x = residual_, .y = {w.token_type.data(), n_tokens_, config_.hidden, 0}, .alpha = 1.0f});
  }
  if (w.positions) {
    ops_.embed(device_, {.tokens = batch.positions, .table = w.positions.get(), .out = branch_});
    ops_.add_scaled(device_, {.x = residual_, .y = branch_, .alpha = 1.0f});
  }
  if (!w.norm.empty()) norm(w.norm, residual_, residual_);
  scratch_.rows.clear();
  for (std::uint32_t i = 0; i < n_tokens_; ++i) {
    if (batch.positions[i] == 0)
      scratch_.rows.push_back({.blocks = &scratch_.blocks[i], .first_token = i});
    ++scratch_.rows.back().n_new;
  }
}

// The step's rows in blocks of one token: token i of the step is block i.
KvLayerView Decoder::whole_rows(const AttentionSpec& a) const {
  return {.k = reinterpret_cast<std::byte*>(scratch_.keys.data()),
          .v = reinterpret_cast<std::byte*>(scratch_.values.data()),
          .type = scratch_.kv_type,
          .n_kv_heads = a.n_kv_heads,
          .head_dim = a.head_dim,
          .block_tokens = 1,
          .window = a.window,
          .rows = scratch_.rows,
          .k_encoded = {},
          .v_encoded = {}};
}

// Of a token: its row of a table, plus its embedding projected and normed, for all layers at once.
void Decoder::embed_per_layer(const PerLayerInputWeights& w, std::span<const TokenId> tokens) {
  const std::uint32_t width = config_.per_layer_inputs_width();
  const MatView inputs = first_rows(scratch_.per_layer_inputs, width);
  const MatView projected = first_rows(scratch_.per_layer_projected, width);
  ops_.embed(device_, {.tokens = tokens,
                       .table = w.table.get(),
                       .scale = config_.per_layer_input_scale,
                       .picked = scratch_.picked.data(),
                       .out = inputs});
  linear(w.projection, residual_, projected);
  ops_.scale(device_, {.x = projected, .alpha = inverse_root_of_hidden()});
  rms_norm(w.norm, projected, projected);
  ops_.add_scaled(device_, {.x = inputs, .y = projected, .alpha = 1.0f});
  ops_.scale(device_, {.x = inputs, .alpha = 1.0f / std::numbers::sqrt2_v<float>});
}

void Decoder::mixer_block(std::size_t layer, const StepBatch& batch) {
  const LayerSpec& spec = config_.layers[layer];
  if (spec.latent) return latent_block(layer, batch);
  if (spec.delta) return delta_block(layer, batch);
  if (spec.short_conv) return short_conv_block(layer, batch);
  attention_block(layer, batch);
}

// A layer without keys and values of its own attends to its donor's, this step's included, from the
// same positions: those the tokens have before anything of them is appended (KV-33, KV-41).
void Decoder::attention_block(std::size_t layer, const StepBatch& batch) {
  const AttentionSpec& a = config_.layers[layer].attention;
  const LayerWeights& w = weights_.layers[layer];
  const KvLayerView kv = config_.encoder ? whole_rows(a) : batch.kv.attention[kv_entries_[layer]];

  const MatView qkv = first_rows(scratch_.qkv, a.qkv_width());
  side_by_side(w.attention.qkv, normed_or_residual(w.attention_in), qkv);
  MatView attended = first_rows(scratch_.attended, a.q_width());
  attend(a, w.attention, qkv, batch, kv, attended);
  if (a.output_gate) {
    const MatView gate = qkv.columns(a.q_width(), a.q_width());
    ops_.act_mul(
        device_,
        {.gate = gate, .up = attended, .activation = ops::Activation::sigmoid, .out = gate});
    attended = gate;
  }
  linear(w.attention.out, attended, branch_);
  add_branch(w.attention_out);
}

void Decoder::feed_forward_block(std::size_t layer) {
  const LayerSpec& spec = config_.layers[layer];
  const LayerWeights& w = weights_.layers[layer];
  if (config_.parallel_blocks) settle();
  const ConstMatView in = config_.parallel_blocks ? first_rows(scratch_.normed, config_.hidden)
                                                  : normed_or_residual(w.mlp_in);
  if (spec.has_mlp()) {
    mlp(spec.mlp, *w.mlp, in, branch_);
    if (spec.moe) add_experts_to_branch(*spec.moe, w);
  } else {
    route(*spec.moe, *w.moe, in);
    experts(*spec.moe, *w.moe, in, branch_);
  }
  add_branch(w.mlp_out);
}

// A token's own input to this layer, gated by the residual stream (MOD-24); then the layer's
// scalar.
void Decoder::per_layer_block(std::size_t layer) {
  const LayerWeights& w = weights_.layers[layer];
  const std::uint32_t width = config_.per_layer_input;
  if (w.per_layer || config_.layer_scalar) settle();
  if (w.per_layer) {
    const MatView gate = first_rows(scratch_.per_layer_gate, width);
    const auto first = static_cast<std::uint32_t>(layer) * width;
    linear(w.per_layer->gate, residual_, gate);
    ops_.act_mul(device_, {.gate = gate,
                           .up = scratch_.per_layer_inputs.rows(0, n_tokens_).columns(first, width),
                           .activation = config_.layers[layer].mlp.activation,
                           .out = gate});
    linear(w.per_layer->out, gate, branch_);
    add_branch(w.per_layer->norm);
  }
  if (config_.layer_scalar) {
    settle();
    ops_.scale(device_, {.x = residual_, .alpha = w.scalar});
  }
}

// Only the wanted rows pass the final norm and the head; an embedding model ends with the norm.
LogitsView Decoder::head(std::span<const std::uint32_t> wanted) {
  const auto n_wanted = static_cast<std::uint32_t>(wanted.size());
  const std::uint32_t width = config_.has_head ? config_.vocab : config_.hidden;
  const bool is_whole = config_.has_head && n_wanted == n_tokens_ && is_in_order(wanted);
  if (!is_whole) settle();
  if (n_wanted == 0) return {.data = nullptr, .n_rows = 0, .vocab = width};
  ConstMatView rows;
  if (is_whole) {  // a decode step: the norm comes with the last addition
    rows = normed_or_residual(weights_.norm);
  } else {
    const MatView gathered = scratch_.wanted.rows(0, n_wanted);
    ops_.gather_rows(device_, {.x = residual_, .rows = wanted, .out = gathered});
    if (!weights_.norm.empty()) norm(weights_.norm, gathered, gathered);
    rows = gathered;
  }
  if (!config_.has_head) return {.data = rows.data, .n_rows = n_wanted, .vocab = width};
  const MatView logits = scratch_.logits.rows(0, n_wanted);
  ops_.linear(device_, {.x = rows, .weight = &weights_.head(), .bias = nullptr, .out = logits});
  if (config_.logit_scale != 1.0f || config_.logit_softcap > 0.0f) {
    ops_.scale(device_,
               {.x = logits, .alpha = config_.logit_scale, .softcap = config_.logit_softcap});
  }
  return {.data = logits.data, .n_rows = n_wanted, .vocab = config_.vocab};
}

// Queries and keys normed and rotated, this step's keys and values appended; then attention.
void Decoder::attend(const AttentionSpec& a,
                     const AttentionWeights& w,
                     MatView qkv,
                     const StepBatch& batch,
                     const KvLayerView& kv,
                     MatView out) {
  const MatView q = qkv.columns(0, a.q_width());
  const bool has_norms = a.qk_norm != QkNorm::none;
  const ops::AttentionArgs attention{.q = q,
                                     .kv = kv,
                                     .n_heads = a.n_heads,
                                     .scale = a.scale,
                                     .softcap = a.softcap,
                                     .sinks = a.sinks ? w.sinks.data() : nullptr,
                                     .both_ways = config_.encoder.has_value(),
                                     .out = out};
  if (a.donor || a.v_norm) {
    if (has_norms) rms_norm(w.q_norm, q, q);
    rotate(a, q, batch.positions);
    if (!a.donor)
      append_kv(a, w, qkv.columns(a.k_column(), a.kv_width()),
                qkv.columns(a.k_column() + a.kv_width(), a.kv_width()), batch, kv);
    return ops_.attention(device_, attention);
  }
  const RopeTable* const rope = a.rope ? &ropes_[*a.rope] : nullptr;
  ops_.prepared_attention(device_,
                          {.prepare = {.q = q,
                                       .k = qkv.columns(a.k_column(), a.kv_width()),
                                       .v = qkv.columns(a.k_column() + a.kv_width(), a.kv_width()),
                                       .q_norm = has_norms ? w.q_norm.data() : nullptr,
                                       .k_norm = has_norms ? w.k_norm.data() : nullptr,
                                       .q_group = static_cast<std::uint32_t>(w.q_norm.size()),
                                       .k_group = static_cast<std::uint32_t>(w.k_norm.size()),
                                       .eps = config_.norm_eps,
                                       .head_dim = a.head_dim,
                                       .n_pairs = rope ? rope->n_pairs : 0,
                                       .interleaved = rope && rope->interleaved,
                                       .positions = batch.positions,
                                       .cos = rope ? rope->cos : nullptr,
                                       .sin = rope ? rope->sin : nullptr,
                                       .kv = kv},
                           .attend = attention});
}

// Where values are normed too, or are the keys.
void Decoder::append_kv(const AttentionSpec& a,
                        const AttentionWeights& w,
                        MatView k,
                        MatView v,
                        const StepBatch& batch,
                        const KvLayerView& kv) {
  if (a.v_norm) {
    ops_.rms_norm(device_, {.x = a.v_is_k ? k : v,
                            .weight = nullptr,
                            .group = a.head_dim,
                            .eps = config_.norm_eps,
                            .out = v});
  }
  if (a.qk_norm != QkNorm::none) rms_norm(w.k_norm, k, k);
  rotate(a, k, batch.positions);
  ops_.kv_append(device_, {.k = k, .v = v, .kv = kv});
}

void Decoder::rotate(const AttentionSpec& a, MatView x, std::span<const std::uint32_t> positions) {
  if (a.rope) rotate(*a.rope, a.head_dim, x, positions);
}

void Decoder::rotate(std::uint32_t rope,
                     std::uint32_t head_dim,
                     MatView x,
                     std::span<const std::uint32_t> positions) {
  const RopeTable& table = ropes_[rope];
  ops_.rope(device_, {.x = x,
                      .head_dim = head_dim,
                      .n_pairs = table.n_pairs,
                      .interleaved = table.interleaved,
                      .positions = positions,
                      .cos = table.cos,
                      .sin = table.sin});
}

void Decoder::mlp(const MlpSpec& spec, const MlpWeights& w, ConstMatView in, MatView out) {
  const std::uint32_t n = spec.intermediate;
  const MatView gate_up = first_rows(scratch_.gate_up, spec.is_gated ? 2 * n : n);
  const MatView gate = gate_up.columns(0, n);
  if (spec.is_gated) {
    const float* const bias = w.down.bias.empty() ? nullptr : w.down.bias.data();
    return ops_.gated_mlp(device_, {.gated = {.x = in,
                                              .parts = parts_of(w.gate_up),
                                              .activation = spec.activation,
                                              .gate_up = gate_up},
                                    .down = {w.down.weight.get(), bias},
                                    .out = out});
  }
  side_by_side(w.gate_up, in, gate_up);
  ops_.act_mul(device_, {.gate = gate,
                         .up = ConstMatView{w.ones.data(), n_tokens_, n, 0},
                         .activation = spec.activation,
                         .out = gate});
  linear(w.down, gate, out);
}

void Decoder::route(const MoeSpec& moe, const MoeWeights& w, ConstMatView in) {
  const MatView logits = first_rows(scratch_.router_logits, moe.n_experts);
  const std::size_t n_choices = std::size_t{n_tokens_} * moe.top_k;
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
                  .expert_scales = w.expert_scales.empty() ? nullptr : w.expert_scales.data(),
                  .experts = scratch_.experts.first(n_choices),
                  .weights = scratch_.expert_weights.first(n_choices)});
}

// The experts that route() chose.
void Decoder::experts(const MoeSpec& moe, const MoeWeights& w, ConstMatView in, MatView out) {
  const std::size_t n_choices = std::size_t{n_tokens_} * moe.top_k;
  ops_.moe_experts(device_, {.x = in,
                             .experts = scratch_.experts.first(n_choices),
                             .weights = scratch_.expert_weights.first(n_choices),
                             .top_k = moe.top_k,
                             .bank = w.bank,
                             .activation = moe.activation,
                             .limit = moe.activation_limit,
                             .scratch = scratch_.moe,
                             .out = out});
  if (!w.shared) return;
  const MatView shared = first_rows(scratch_.shared, config_.hidden);
  mlp({.intermediate = moe.shared_intermediate, .activation = moe.activation}, *w.shared, in,
      shared);
  if (w.shared_gate) {
    const MatView gate = first_rows(scratch_.router_logits, 1);
    linear(*w.shared_gate, in, gate);
    ops_.gate_rows(device_, {.x = shared, .gate = gate});
  }
  ops_.add_scaled(device_, {.x = out, .y = shared, .alpha = 1.0f});
}

// Experts beside an mlp (MOD-25): both read the residual stream through norms of their own, and
// their normed outputs add up. The router's norm is two products, never a folded weight (MOD-74).
void Decoder::add_experts_to_branch(const MoeSpec& moe, const LayerWeights& w) {
  const MatView in = first_rows(scratch_.normed, config_.hidden);
  const MatView out = first_rows(scratch_.shared, config_.hidden);
  norm(w.mlp_branch_out, branch_, branch_);
  rms_norm(w.moe->router_scale, residual_, in);
  ops_.scale(device_, {.x = in, .alpha = inverse_root_of_hidden()});
  route(moe, *w.moe, in);
  norm(w.experts_in, residual_, in);
  experts(moe, *w.moe, in, out);
  norm(w.experts_out, out, out);
  ops_.add_scaled(device_, {.x = branch_, .y = out, .alpha = 1.0f});
}

void Decoder::linear(const Linear& w, ConstMatView in, MatView out) {
  ops_.linear(device_, {.x = in,
                        .weight = w.weight.get(),
                        .bias = w.bias.empty() ? nullptr : w.bias.data(),
                        .out = out});
}

void Decoder::side_by_side(const SideBySide& parts, ConstMatView in, MatView out) {
  ops_.linear_group(device_, {.x = in, .parts = parts_of(parts), .out = out});
}

std::span<const ops::LinearPart> Decoder::parts_of(const SideBySide& parts) {
  parts_.clear();
  for (const Linear& part : parts)
    parts_.push_back({part.weight.get(), part.bias.empty() ? nullptr : part.bias.data()});
  return parts_;
}

// One group is as wide as the weight: a whole row, or a head.
void Decoder::rms_norm(const Vector& weight, ConstMatView in, MatView out, float eps) {
  const auto group = static_cast<std::uint32_t>(weight.size());
  ops_.rms_norm(device_,
                {.x = in, .weight = weight.data(), .group = group, .eps = eps, .out = out});
}

void Decoder::norm(const Norm& w, ConstMatView in, MatView out) {
  if (config_.norm_kind == NormKind::rms) return rms_norm(w.weight, in, out);
  ops_.layer_norm(device_, {.x = in,
                            .weight = w.weight.data(),
                            .bias = w.bias.empty() ? nullptr : w.bias.data(),
                            .eps = config_.norm_eps,
                            .out = out});
}

// A block's input: the residual stream, normed where the family norms before its blocks.
ConstMatView Decoder::normed_or_residual(const Norm& w) {
  const MatView normed = first_rows(scratch_.normed, config_.hidden);
  if (w.empty() || config_.norm_kind != NormKind::rms) settle();
  if (w.empty()) return residual_;
  if (!has_unadded_branch_) {
    norm(w, residual_, normed);
    return normed;
  }
  has_unadded_branch_ = false;
  ops_.add_norm(device_, {.x = residual_,
                          .y = branch_,
                          .alpha = config_.residual_scale,
                          .weight = w.weight.data(),
                          .eps = config_.norm_eps,
                          .out = normed});
  return normed;
}

// residual += scale · branch, normed first where the family norms after its blocks, or normed with
// it where an encoder norms the sum.
void Decoder::add_branch(const Norm& after) {
  const bool norms_sum = config_.encoder && config_.encoder->norms_residual;
  if (!after.empty() && !norms_sum) norm(after, branch_, branch_);
  has_unadded_branch_ = true;  // together with the next block's norm
  if (after.empty() || !norms_sum) return;
  settle();
  norm(after, residual_, residual_);
}

void Decoder::settle() {
  if (!std::exchange(has_unadded_branch_, false)) return;
  ops_.add_scaled(device_, {.x = residual_, .y = branch_, .alpha = config_.residual_scale});
}

float Decoder::inverse_root_of_hidden() const noexcept {
  return static_cast<float>(1.0 / std::sqrt(double(config_.hidden)));
}

}  // namespace kvasir::model
