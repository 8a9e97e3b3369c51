// What Qwen's hybrids have in common (MOD-19…21, 40, 41, 43). Yang et al., "Gated Delta Networks",
// 2024.
#include <algorithm>
#include <string>

#include "model/detail/decoder_reader.h"

namespace kvasir::model {
namespace {

DeltaSpec read_delta(const ConfigReader& config, bool fused_inputs) {
  constexpr std::uint32_t kMaxKernel = 64;
  DeltaSpec d;
  d.n_key_heads = config.count("linear_num_key_heads", kMaxHeads);
  d.n_value_heads = config.count("linear_num_value_heads", kMaxHeads);
  d.key_dim = config.count("linear_key_head_dim", kMaxHeadDim);
  d.value_dim = config.count("linear_value_head_dim", kMaxHeadDim);
  d.conv_kernel = config.count("linear_conv_kernel_dim", kMaxKernel);
  const auto& tensors = config.files().tensors();
  d.fused_ba = fused_inputs;
  d.fused_qkvz = fused_inputs && std::none_of(tensors.begin(), tensors.end(), [](const auto& t) {
                   return t.name.ends_with(".linear_attn.in_proj_qkv.weight");  // GGUF
                 });
  if (d.n_value_heads % d.n_key_heads != 0) {
    config.refuse("linear_num_value_heads", "must be a multiple of linear_num_key_heads");
    d.n_key_heads = d.n_value_heads;
  }
  if (std::uint64_t{d.n_key_heads} * d.key_dim > kMaxWidth ||
      std::uint64_t{d.n_value_heads} * d.value_dim > kMaxWidth) {
    config.refuse("linear_value_head_dim", "makes heads too large");
    d.key_dim = d.value_dim = 2;
  }
  return d;
}

// Original files store [channels, 1, kernel] and norm weights centred on zero, converted ones
// neither; the shape of the first tells both (MOD-43).
bool is_original(const ConfigReader& config, const DecoderConfig& d) {
  for (std::size_t i = 0; i < d.layers.size(); ++i) {
    if (!d.layers[i].is_recurrent()) continue;
    const formats::TensorInfo* conv =
        config.files().find("model.layers." + std::to_string(i) + ".linear_attn.conv1d.weight");
    if (conv) return !conv->shape.empty() && conv->shape.back() != 1;
  }
  return false;
}

}  // namespace

DecoderConfig read_qwen_hybrid(const ConfigReader& config, bool fused_inputs) {
  DecoderConfig d =
      read_decoder(config, {.rope = {.partial_rotary = 0.25},
                            .recurrent_type = "linear_attention",
                            .full_interval = config.count("full_attention_interval", kMaxLayers)});
  set_biases(config, d);
  const DeltaSpec delta = read_delta(config, fused_inputs);
  for (LayerSpec& layer : d.layers) {
    if (layer.is_recurrent()) {
      layer.delta = delta;
      continue;
    }
    layer.attention.qk_norm = QkNorm::per_head;
    layer.attention.output_gate = config.flag_or("attn_output_gate", true);
  }
  d.norm_plus_one = is_original(config, d);
  d.checks_norm_means = true;
  return d;
}

MoeSpec read_qwen_experts(const ConfigReader& config, DecoderConfig& decoder) {
  MoeSpec moe = read_softmax_moe(config, "moe_intermediate_size");
  moe.renormalize = config.flag_or("norm_topk_prob", true);
  moe.shared_intermediate = config.count("shared_expert_intermediate_size", kMaxWidth);
  moe.shared_gate = true;
  decoder.names.shared_expert = "mlp.shared_expert";
  const auto& tensors = config.files().tensors();
  const bool is_fused = std::any_of(tensors.begin(), tensors.end(), [](const auto& t) {
    return t.name.ends_with(".mlp.experts.gate_up_proj");
  });
  if (is_fused) {
    moe.layout = ExpertLayout::fused;
    decoder.names.expert_gate_up = "mlp.experts.gate_up_proj";
    decoder.names.expert_down = "mlp.experts.down_proj";
    decoder.names.expert_suffix = "";
  }
  return moe;
}

std::vector<bool> read_sparse_layers(const ConfigReader& config, std::size_t n_layers) {
  const std::uint32_t step =
      config.has("decoder_sparse_step") ? config.count("decoder_sparse_step", kMaxLayers) : 1;
  std::vector<bool> out(n_layers);
  for (std::size_t i = 0; i < n_layers; ++i) out[i] = (i + 1) % step == 0;
  const json::Value* list = config.find("mlp_only_layers");
  if (!list) return out;
  const std::size_t n = list->as_array() ? list->as_array()->size() : 0;
  for (const double layer : config.numbers("mlp_only_layers", n, 0, kMaxLayers)) {
    if (const auto i = static_cast<std::size_t>(layer); i < n_layers) out[i] = false;
  }
  return out;
}

}  // namespace kvasir::model
