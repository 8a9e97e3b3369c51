// GLM-4-0414 (MOD-28): norms before and after each block, interleaved rope on half of a head, fused
// gate and up.
#include "model/detail/decoder_reader.h"
#include "model/families.h"

namespace kvasir::model::families {

DecoderConfig glm4(const ConfigReader& config) {
  DecoderConfig d = read_decoder(config, {.rope = {.partial_rotary = 0.5, .interleaved = true}});
  d.names.attention_out = "post_self_attn_layernorm";
  d.names.mlp_out = "post_mlp_layernorm";
  for (LayerSpec& layer : d.layers) {
    layer.attention.qkv_bias = read_bias(config, "attention_bias", "self_attn.q_proj.bias");
    layer.mlp.fused_gate_up = true;
  }
  return d;
}

}  // namespace kvasir::model::families
