#include "model/detail/scratch.h"

#include <algorithm>

namespace kvasir::model {
namespace {

struct Widths {  // the largest of each over all layers
  std::uint32_t qkv = 0, conv = 0, q = 0, kv = 0, gate_up = 0, shared = 0, experts = 0, top_k = 0;
  std::uint32_t q_down = 0, latent_q = 0, latent_row = 0;
  std::uint32_t index_q = 0, index_key = 0, index_heads = 0, selected = 0;
  std::uint64_t moe_floats = 0;
};

// Queries and values of a latent layer lie where others' do.
void widen(Widths& w, const LatentAttentionSpec& a) {
  w.qkv = std::max({w.qkv, a.q_width(), a.v_width()});
  w.q = std::max(w.q, a.latent_width());
  w.q_down = std::max(w.q_down, a.q_rank);
  w.latent_q = std::max(w.latent_q, a.latent_width());
  w.latent_row = std::max(w.latent_row, a.row_dim());
  if (!a.has_own_index()) return;
  w.index_q = std::max(w.index_q, a.index->n_heads * a.index->dim);
  w.index_key = std::max(w.index_key, a.index->dim);
  w.index_heads = std::max(w.index_heads, a.index->n_heads);
  w.selected = std::max(w.selected, a.index->top_k);
}

Widths widths_of(const DecoderConfig& config, std::uint32_t n_tokens) {
  Widths w;
  for (const LayerSpec& layer : config.layers) {
    w.qkv = std::max(w.qkv, layer.attention.qkv_width());
    w.q = std::max(w.q, layer.attention.q_width());
    w.kv = std::max(w.kv, layer.attention.kv_width());
    if (layer.latent) widen(w, *layer.latent);
    if (const auto& d = layer.delta) {
      w.qkv = std::max(w.qkv, d->inputs_width());
      w.conv = std::max(w.conv, d->conv_width());
      w.q = std::max(w.q, d->values_width());
    }
    if (const auto& c = layer.short_conv) {
      w.qkv = std::max(w.qkv, 3 * c->width);
      w.conv = std::max(w.conv, c->width);
    }
    if (layer.has_mlp()) w.gate_up = std::max(w.gate_up, 2 * layer.mlp.intermediate);
    if (!layer.moe) continue;
    w.gate_up = std::max(w.gate_up, 2 * layer.moe->shared_intermediate);
    if (layer.moe->shared_intermediate || layer.moe->beside_mlp) w.shared = config.hidden;
    w.experts = std::max(w.experts, layer.moe->n_experts);
    w.top_k = std::max(w.top_k, layer.moe->top_k);
    w.moe_floats = std::max<std::uint64_t>(
        w.moe_floats, ops::moe_scratch_floats(n_tokens, layer.moe->top_k, config.hidden,
                                              layer.moe->intermediate));
  }
  return w;
}

std::uint32_t record_width(const LayerSpec& layer) {
  if (layer.delta) return layer.delta->conv_width() + 2 * layer.delta->n_value_heads;
  return layer.short_conv ? layer.short_conv->width : 0;
}

// Cuts a run of floats into parts that start on 64 bytes; with no memory it only measures.
class Cutter {
 public:
  explicit Cutter(float* memory) : memory_(memory) {}
  std::span<float> floats(std::uint64_t n) {
    float* const at = memory_ ? memory_ + used_ : nullptr;
    used_ += (n + 15) / 16 * 16;
    return {at, memory_ ? n : 0};
  }
  MatView matrix(std::uint32_t n_rows, std::uint32_t n_cols) {
    return mat_view(floats(std::uint64_t{n_rows} * n_cols).data(), n_rows, n_cols);
  }
  std::span<std::uint32_t> indices(std::uint64_t n) {
    const std::span<float> memory = floats(n);
    return {reinterpret_cast<std::uint32_t*>(memory.data()), memory.size()};
  }
  std::uint64_t size_bytes() const noexcept { return used_ * sizeof(float); }

 private:
  float* memory_;
  std::uint64_t used_ = 0;
};

void cut_latent(LatentScratch& out, Cutter& cutter, const Widths& w, std::uint32_t n) {
  out.q_down = cutter.matrix(n, w.q_down);
  out.q = cutter.matrix(n, w.latent_q);
  out.row = cutter.matrix(n, w.latent_row);
  out.index_q = cutter.matrix(n, w.index_q);
  out.index_key = cutter.matrix(n, w.index_key);
  out.index_weights = cutter.matrix(n, w.index_heads);
  out.selected = cutter.indices(std::uint64_t{n} * w.selected);
}

std::uint64_t cut(Scratch& out,
                  float* memory,
                  const DecoderConfig& config,
                  const StepLimits& limits) {
  const std::uint32_t n = limits.max_step_tokens;
  const Widths w = widths_of(config, n);
  Cutter cutter(memory);
  out.residual = cutter.matrix(n, config.hidden);
  out.normed = cutter.matrix(n, config.hidden);
  out.branch = cutter.matrix(n, config.hidden);
  out.qkv = cutter.matrix(n, w.qkv);
  out.conv = cutter.matrix(n, w.conv);
  out.attended = cutter.matrix(n, w.q);
  cut_latent(out.latent, cutter, w, n);
  out.gate_up = cutter.matrix(n, w.gate_up);
  out.shared = cutter.matrix(n, w.shared);
  out.per_layer_inputs = cutter.matrix(n, config.per_layer_inputs_width());
  out.per_layer_projected = cutter.matrix(n, config.per_layer_inputs_width());
  out.per_layer_gate = cutter.matrix(n, config.per_layer_input);
  out.router_logits = cutter.matrix(n, w.experts);
  out.expert_weights = cutter.floats(std::uint64_t{n} * w.top_k);
  out.experts = cutter.indices(std::uint64_t{n} * w.top_k);
  out.moe = cutter.floats(w.moe_floats);
  out.wanted = cutter.matrix(limits.max_wanted, config.hidden);
  out.logits = cutter.matrix(limits.max_wanted, config.has_head ? config.vocab : 0);
  out.picked = cutter.indices(config.has_head ? limits.max_wanted : 0);
  out.records.clear();
  for (const LayerSpec& layer : config.layers)
    out.records.push_back(cutter.matrix(limits.max_tentative, record_width(layer)));
  if (config.encoder) {
    out.keys = cutter.floats(std::uint64_t{n} * w.kv);
    out.values = cutter.floats(std::uint64_t{n} * w.kv);
  }
  return cutter.size_bytes();
}

}  // namespace

std::uint64_t scratch_size_bytes(const DecoderConfig& config, const StepLimits& limits) {
  Scratch measured;
  return cut(measured, nullptr, config, limits);
}

Result<Scratch> make_scratch(ops::Device& device,
                             const DecoderConfig& config,
                             const StepLimits& limits) {
  Scratch out;
  KVASIR_TRY(out.memory, device.allocate(scratch_size_bytes(config, limits)));
  cut(out, out.memory.f32(), config, limits);
  out.tentative.reserve(limits.max_tentative);
  out.replayed.reserve(limits.max_tentative);
  if (config.encoder) {
    for (std::uint32_t i = 0; i < limits.max_step_tokens; ++i) out.blocks.push_back({i});
    out.rows.reserve(limits.max_step_tokens);
  }
  return out;
}

}  // namespace kvasir::model
