// StarCoder 2: LayerNorm and biases everywhere, an MLP without gate, windows on all layers. Lozhkov
// et al., "StarCoder 2 and The Stack v2", 2024.
#include "model/detail/decoder_reader.h"
#include "model/families.h"

namespace kvasir::model::families {

DecoderConfig starcoder2(const ConfigReader& given) {
  static const json::Value kDefaults = json::Object{{"hidden_act", "gelu_pytorch_tanh"},
                                                    {"max_position_embeddings", 4096},
                                                    {"norm_epsilon", 1e-5},
                                                    {"use_bias", true}};
  const ConfigReader config(given, kDefaults);
  DecoderConfig d = read_decoder(config, {.window = read_window(config)});
  d.norm_kind = NormKind::layer;
  d.norm_bias = true;
  d.norm_eps = static_cast<float>(config.number("norm_epsilon", 0.0, 1.0));
  const bool has_bias = config.flag_or("use_bias", true);
  for (LayerSpec& layer : d.layers) {
    layer.attention.qkv_bias = layer.attention.out_bias = layer.mlp.bias = has_bias;
    layer.mlp.is_gated = false;
  }
  return d;
}

}  // namespace kvasir::model::families
