// gpt-oss (MOD-34): attention sinks, biases everywhere, every other layer slides; experts of
// clamped SwiGLU, weighed by a softmax over the chosen ones. "gpt-oss-120b & gpt-oss-20b Model
// Card", 2025.
#include "model/detail/decoder_reader.h"
#include "model/families.h"

namespace kvasir::model::families {
namespace {

// Original files fuse gate and up, row by row; converted ones hold them apart, as stacks.
void name_experts(const ConfigReader& config, MoeSpec& moe, LayerNames& names) {
  const auto stores = [&](std::string_view name) {
    return config.files().has("model.layers.0.mlp." + std::string(name));
  };
  names.router = "mlp.router";
  if (stores("experts.gate_proj.weight")) {
    names.expert_gate = "mlp.experts.gate_proj";
    names.expert_up = "mlp.experts.up_proj";
    names.expert_down = "mlp.experts.down_proj";
  } else if (stores("switch_mlp.gate_proj.weight")) {
    names.expert_gate = "mlp.switch_mlp.gate_proj";
    names.expert_up = "mlp.switch_mlp.up_proj";
    names.expert_down = "mlp.switch_mlp.down_proj";
  } else {
    moe.layout = ExpertLayout::fused_interleaved;
    moe.inputs_first = true;
    names.expert_gate_up = "mlp.experts.gate_up_proj";
    names.expert_down = "mlp.experts.down_proj";
    names.expert_suffix = stores("experts.gate_up_proj_blocks") ? "_blocks" : "";  // MXFP4
    names.expert_bias_suffix = "_bias";
  }
}

}  // namespace

DecoderConfig gpt_oss(const ConfigReader& given) {
  static const json::Value kDefaults = json::Object{{"head_dim", 64},
                                                    {"rms_norm_eps", 1e-5},
                                                    {"sliding_window", 128},
                                                    {"sliding_window_pattern", 2},
                                                    {"swiglu_limit", 7.0}};
  const ConfigReader config(given, kDefaults);
  DecoderConfig d =
      read_decoder(config, {.rope = {.theta = 150000.0}, .window = read_window(config)});
  MoeSpec moe = read_softmax_moe(config, "intermediate_size");
  moe.score = ops::RouterScore::softmax_chosen;
  moe.activation = ops::Activation::clamped_swiglu;
  moe.activation_limit = static_cast<float>(config.number("swiglu_limit", 1e-3, 1e6));
  moe.bias = true;
  name_experts(config, moe, d.names);
  const bool has_bias = read_bias(config, "attention_bias", "self_attn.q_proj.bias");
  for (LayerSpec& layer : d.layers) {
    layer.attention.qkv_bias = layer.attention.out_bias = has_bias;
    layer.attention.sinks = true;
    layer.moe = moe;
  }
  return d;
}

}  // namespace kvasir::model::families
