// Gemma 4, dense and with experts (MOD-24, 25): full layers with heads of their own size and a rope
// that leaves most of a head alone, values normed, a token's own input to each layer, last layers
// that read the keys and values of earlier ones (KV-41).
#include <cmath>

#include "model/detail/decoder_reader.h"
#include "model/families.h"

namespace kvasir::model::families {
namespace {

const json::Value& defaults() {
  static const json::Value kPlain = json::Object{{"rope_type", "default"}, {"rope_theta", 10000.0}};
  static const json::Value kPartial = json::Object{
      {"rope_type", "proportional"}, {"rope_theta", 1000000.0}, {"partial_rotary_factor", 0.25}};
  static const json::Value kDefaults =
      json::Object{{"global_head_dim", 512},
                   {"head_dim", 256},
                   {"hidden_activation", "gelu_pytorch_tanh"},
                   {"max_position_embeddings", 131072},
                   {"rope_parameters",
                    json::Object{{"sliding_attention", kPlain}, {"full_attention", kPartial}}},
                   {"sliding_window", 512},
                   {"sliding_window_pattern", 6}};
  return kDefaults;
}

// The last n layers read the keys and values of the last layer of their type before them.
void borrow(const ConfigReader& config, std::uint32_t n_borrowing, DecoderConfig& d) {
  const char* const kName = "num_kv_shared_layers";
  if (n_borrowing >= d.layers.size()) {
    if (n_borrowing) config.refuse(kName, "must be below num_hidden_layers");
    return;
  }
  const auto first = static_cast<std::uint32_t>(d.layers.size()) - n_borrowing;
  const bool is_double_wide = config.flag_or("use_double_wide_mlp", false);
  for (std::uint32_t i = first; i < d.layers.size(); ++i) {
    LayerSpec& layer = d.layers[i];
    std::uint32_t donor = first;
    while (donor > 0 && d.layers[donor - 1].type != layer.type) --donor;
    if (donor == 0) return config.refuse(kName, "leaves a layer without one of its type to read");
    const AttentionSpec& from = d.layers[donor - 1].attention;
    if (from.head_dim != layer.attention.head_dim ||
        from.n_kv_heads != layer.attention.n_kv_heads) {
      return config.refuse(kName, "makes a layer read keys of another shape");
    }
    layer.attention.donor = donor - 1;
    layer.attention.v_is_k = false;
    if (is_double_wide) layer.mlp.intermediate *= 2;
  }
}

MoeSpec read_experts(const ConfigReader& config, LayerNames& names) {
  MoeSpec moe = read_softmax_moe(config, "moe_intermediate_size", "top_k_experts");
  moe.renormalize = true;
  moe.beside_mlp = moe.router_norm = moe.expert_scales = true;
  names.router = "router.proj";
  names.router_scale = "router.scale";
  names.expert_scales = "router.per_expert_scale";
  names.mlp_branch_out = "post_feedforward_layernorm_1";
  names.experts_in = "pre_feedforward_layernorm_2";
  names.experts_out = "post_feedforward_layernorm_2";
  if (config.files().has("model.layers.0.experts.switch_glu.gate_proj.weight")) {
    names.expert_gate = "experts.switch_glu.gate_proj";
    names.expert_up = "experts.switch_glu.up_proj";
    names.expert_down = "experts.switch_glu.down_proj";
  } else {
    moe.layout = ExpertLayout::fused;
    names.expert_gate_up = "experts.gate_up_proj";
    names.expert_down = "experts.down_proj";
    names.expert_suffix = "";
  }
  return moe;
}

// A token's own inputs come from a second table, as wide as all layers' together.
void read_per_layer_inputs(const ConfigReader& config, DecoderConfig& d) {
  const char* const kTable = "model.embed_tokens_per_layer.weight";
  const std::uint32_t width = config.files().has(kTable) ? 256 : 0;
  d.per_layer_input = config.count_or("hidden_size_per_layer_input", width, kMaxWidth);
  if (!d.per_layer_input) return;
  if (d.per_layer_input * d.layers.size() > kMaxWidth) {
    config.refuse("hidden_size_per_layer_input", "makes a table too wide");
    d.per_layer_input = 0;
    return;
  }
  if (config.count_or("vocab_size_per_layer_input", d.vocab, kMaxVocab) != d.vocab)
    config.refuse("vocab_size_per_layer_input", "must be vocab_size");
  d.per_layer_input_scale = static_cast<float>(std::sqrt(double(d.per_layer_input)));
}

}  // namespace

DecoderConfig gemma4(const ConfigReader& given) {
  const ConfigReader config(given, defaults());
  if (const json::Value* reach = config.find("use_bidirectional_attention");
      reach && reach->as_string() && *reach->as_string() == "all") {
    config.refuse("use_bidirectional_attention", "'all' is not supported");
  }
  const bool k_is_v = config.flag_or("attention_k_eq_v", false);
  DecoderConfig d = read_decoder(
      config, {.window = read_window(config),
               .ends_with_full_layer = true,
               .full_head_dim = config.count("global_head_dim", kMaxHeadDim),
               .full_n_kv_heads =
                   k_is_v ? config.count_or("num_global_key_value_heads", 0, kMaxHeads) : 0});
  set_biases(config, d);
  set_gemma_blocks(config, d);
  read_per_layer_inputs(config, d);
  d.layer_scalar = true;
  d.logit_softcap = static_cast<float>(config.number_or("final_logit_softcapping", 0, 0, 1e6));
  for (LayerSpec& layer : d.layers) {
    layer.attention.scale = 1.0f;
    layer.attention.qk_norm = QkNorm::per_head;
    layer.attention.v_norm = true;
    layer.attention.v_is_k = k_is_v && layer.type == LayerType::full;
  }
  borrow(config, config.count_or("num_kv_shared_layers", 0, kMaxLayers), d);
  if (!config.flag_or("enable_moe_block", false)) return d;
  const MoeSpec moe = read_experts(config, d.names);
  for (LayerSpec& layer : d.layers) layer.moe = moe;
  return d;
}

}  // namespace kvasir::model::families
