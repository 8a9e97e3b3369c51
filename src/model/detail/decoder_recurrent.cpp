// Layers whose state is a recurrence: gated delta (MOD-41), short convolutions (MOD-33), and their
// way back to a state after fewer tokens (KV-39).
#include <cmath>

#include "base/check.h"
#include "model/detail/decoder.h"

namespace kvasir::model {

void Decoder::delta_block(std::size_t layer, const StepBatch& batch) {
  const DeltaSpec& d = *config_.layers[layer].delta;
  const LayerWeights& block = weights_.layers[layer];
  const DeltaWeights& w = *block.delta;
  const std::uint32_t n_heads = d.n_value_heads;

  const MatView in = first_rows(scratch_.qkv, d.inputs_width());
  side_by_side(w.in, normed_or_residual(block.attention_in), in);
  const MatView qkv = in.columns(0, d.conv_width()),
                z = in.columns(d.conv_width(), d.values_width()),
                b_a = in.columns(d.b_column(), 2 * n_heads), b = b_a.columns(0, n_heads),
                a = b_a.columns(n_heads, n_heads);
  ops_.delta_gates(device_, {.a = a,
                             .b = b,
                             .a_log = w.a_log.data(),
                             .dt_bias = w.dt_bias.data(),
                             .decay = a,
                             .beta = b});
  record(layer, {qkv, b_a});

  const MatView y = first_rows(scratch_.attended, d.values_width());
  delta_scan(d, w, qkv, b_a, batch.kv.recurrent[kv_entries_[layer]], y);
  rms_norm(w.norm, y, y);
  ops_.act_mul(device_, {.gate = z, .up = y, .activation = ops::Activation::silu, .out = z});
  linear(w.out, z, branch_);
  add_branch(block.attention_out);
}

// inputs: q | k | v before the convolution; out of no data: only the states.
void Decoder::delta_scan(const DeltaSpec& d,
                         const DeltaWeights& w,
                         ConstMatView inputs,
                         ConstMatView beta_decay,
                         const RecurrentLayerView& state,
                         MatView out) {
  constexpr float kEps = 1e-6f;
  const MatView mixed = scratch_.conv.rows(0, inputs.n_rows).columns(0, d.conv_width());
  ops_.causal_conv(device_, {.x = inputs,
                             .weight = w.conv.data(),
                             .bias = nullptr,
                             .silu = true,
                             .state = state,
                             .out = mixed});
  const MatView q = mixed.columns(0, d.keys_width()),
                k = mixed.columns(d.keys_width(), d.keys_width()),
                v = mixed.columns(2 * d.keys_width(), d.values_width());
  const auto scale = static_cast<float>(1.0 / std::sqrt(double(d.key_dim)));
  ops_.l2_norm(device_, {.x = q, .group = d.key_dim, .eps = kEps, .scale = scale, .out = q});
  ops_.l2_norm(device_, {.x = k, .group = d.key_dim, .eps = kEps, .scale = 1.0f, .out = k});
  ops_.gated_delta(device_, {.q = q,
                             .k = k,
                             .v = v,
                             .decay = beta_decay.columns(d.n_value_heads, d.n_value_heads),
                             .beta = beta_decay.columns(0, d.n_value_heads),
                             .state = state,
                             .out = out});
}

void Decoder::short_conv_block(std::size_t layer, const StepBatch& batch) {
  const std::uint32_t width = config_.layers[layer].short_conv->width;
  const LayerWeights& block = weights_.layers[layer];
  const ShortConvWeights& w = *block.short_conv;
  const auto product = [&](MatView x, ConstMatView y) {
    ops_.act_mul(device_, {.gate = x, .up = y, .activation = ops::Activation::identity, .out = x});
  };

  const MatView in = first_rows(scratch_.qkv, 3 * width);
  linear(w.in, normed_or_residual(block.attention_in), in);
  const MatView b = in.columns(0, width), c = in.columns(width, width);
  product(b, in.columns(2 * width, width));
  record(layer, {b});
  const MatView convolved = first_rows(scratch_.conv, width);
  convolve(w, b, batch.kv.recurrent[kv_entries_[layer]], convolved);
  product(c, convolved);
  linear(w.out, c, branch_);
  add_branch(block.attention_out);
}

// out of no data: only the tails.
void Decoder::convolve(const ShortConvWeights& w,
                       ConstMatView inputs,
                       const RecurrentLayerView& state,
                       MatView out) {
  ops_.causal_conv(device_, {.x = inputs,
                             .weight = w.conv.data(),
                             .bias = w.conv_bias.empty() ? nullptr : w.conv_bias.data(),
                             .silu = false,
                             .state = state,
                             .out = out});
}

// The rows of a step are the same in every recurrent layer.
void Decoder::note_tentative(const KvViews& kv) {
  scratch_.tentative.clear();
  for (std::size_t layer = 0; layer < config_.layers.size(); ++layer) {
    if (!config_.layers[layer].is_recurrent()) continue;
    for (const RecurrentRowView& row : kv.recurrent[kv_entries_[layer]].rows) {
      for (std::uint32_t i = 0; row.is_tentative && i < row.n_new; ++i)
        scratch_.tentative.push_back(row.first_token + i);
    }
    return;
  }
}

void Decoder::record(std::size_t layer, std::initializer_list<ConstMatView> parts) {
  if (scratch_.tentative.empty()) return;
  const auto n = static_cast<std::uint32_t>(scratch_.tentative.size());
  std::uint32_t column = 0;
  for (const ConstMatView part : parts) {
    ops_.gather_rows(device_,
                     {.x = part,
                      .rows = scratch_.tentative,
                      .out = scratch_.records[layer].rows(0, n).columns(column, part.n_cols)});
    column += part.n_cols;
  }
}

namespace {

// The rows to feed again, their tokens numbered as they were recorded.
void find_replayed(std::span<const RecurrentRowView> rows,
                   std::span<const std::uint32_t> keep,
                   std::vector<RecurrentRowView>& out) {
  KVASIR_CHECK(keep.size() == rows.size()) << "one count a row";
  out.clear();
  std::uint32_t at = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool is_whole = keep[i] == 0 || keep[i] >= rows[i].n_new;
    KVASIR_CHECK(is_whole || rows[i].is_tentative) << "row " << i << " was not recorded";
    if (!is_whole) {
      RecurrentRowView& row = out.emplace_back(rows[i]);
      row.n_new = keep[i];
      row.first_token = at;
    }
    if (rows[i].is_tentative) at += rows[i].n_new;
  }
}

}  // namespace

void Decoder::replay(const StepBatch& batch, std::span<const std::uint32_t> keep) {
  const auto n = static_cast<std::uint32_t>(scratch_.tentative.size());
  for (std::size_t layer = 0; layer < config_.layers.size(); ++layer) {
    const LayerSpec& spec = config_.layers[layer];
    if (!spec.is_recurrent()) continue;
    RecurrentLayerView state = batch.kv.recurrent[kv_entries_[layer]];
    find_replayed(state.rows, keep, scratch_.replayed);
    if (scratch_.replayed.empty()) return;
    state.rows = scratch_.replayed;
    const MatView record = scratch_.records[layer].rows(0, n);
    if (spec.delta) {
      const DeltaSpec& d = *spec.delta;
      delta_scan(d, *weights_.layers[layer].delta, record.columns(0, d.conv_width()),
                 record.columns(d.conv_width(), 2 * d.n_value_heads), state, {});
    } else {
      convolve(*weights_.layers[layer].short_conv, record, state, {});
    }
  }
}

}  // namespace kvasir::model
