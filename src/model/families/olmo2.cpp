// OLMo 2 (MOD-27): norms after the blocks instead of before; q and k normed over their full width.
// "2 OLMo 2 Furious", 2025.
#include "model/detail/decoder_reader.h"
#include "model/families.h"

namespace kvasir::model::families {

DecoderConfig olmo2(const ConfigReader& config) {
  DecoderConfig d = read_decoder(config, {});
  set_biases(config, d);
  d.names.attention_in = "";
  d.names.attention_out = "post_attention_layernorm";
  d.names.mlp_in = "";
  d.names.mlp_out = "post_feedforward_layernorm";
  for (LayerSpec& layer : d.layers) layer.attention.qk_norm = QkNorm::full_width;
  return d;
}

}  // namespace kvasir::model::families
