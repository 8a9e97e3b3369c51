#include "model/detail/scratch.h"

#include <algorithm>

namespace kvasir::model {
namespace {

struct Widths {  // the largest of each over all layers
  std::uint32_t qkv = 0, q = 0, kv = 0, gate_up = 0, shared = 0, experts = 0, top_k = 0;
  std::uint64_t moe_floats = 0;
};

Widths widths_of(const DecoderConfig& config, std::uint32_t n_tokens) {
  Widths w;
  for (const LayerSpec& layer : config.layers) {
    w.qkv = std::max(w.qkv, layer.attention.qkv_width());
    w.q = std::max(w.q, layer.attention.q_width());
    w.kv = std::max(w.kv, layer.attention.kv_width());
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
  std::uint64_t size_bytes() const noexcept { return used_ * sizeof(float); }

 private:
  float* memory_;
  std::uint64_t used_ = 0;
};

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
  out.attended = cutter.matrix(n, w.q);
  out.gate_up = cutter.matrix(n, w.gate_up);
  out.shared = cutter.matrix(n, w.shared);
  out.per_layer_inputs = cutter.matrix(n, config.per_layer_inputs_width());
  out.per_layer_projected = cutter.matrix(n, config.per_layer_inputs_width());
  out.per_layer_gate = cutter.matrix(n, config.per_layer_input);
  out.router_logits = cutter.matrix(n, w.experts);
  out.expert_weights = cutter.floats(std::uint64_t{n} * w.top_k);
  const std::span<float> experts = cutter.floats(std::uint64_t{n} * w.top_k);
  out.experts = {reinterpret_cast<std::uint32_t*>(experts.data()), experts.size()};
  out.moe = cutter.floats(w.moe_floats);
  out.wanted = cutter.matrix(limits.max_wanted, config.hidden);
  out.logits = cutter.matrix(limits.max_wanted, config.has_head ? config.vocab : 0);
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
  if (config.encoder) {
    for (std::uint32_t i = 0; i < limits.max_step_tokens; ++i) out.blocks.push_back({i});
    out.rows.reserve(limits.max_step_tokens);
  }
  return out;
}

}  // namespace kvasir::model
