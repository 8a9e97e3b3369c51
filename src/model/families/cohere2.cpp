// Command R7B and its kin (MOD-32): attention and MLP side by side behind one LayerNorm; sliding
// layers have an interleaved rope, full ones no positions at all. "Command A", 2025.
#include "model/detail/decoder_reader.h"
#include "model/families.h"

namespace kvasir::model::families {

DecoderConfig cohere2(const ConfigReader& given) {
  static const json::Value kDefaults = json::Object{{"layer_norm_eps", 1e-5},
                                                    {"logit_scale", 0.0625},
                                                    {"sliding_window", 4096},
                                                    {"sliding_window_pattern", 4}};
  const ConfigReader config(given, kDefaults);
  DecoderConfig d =
      read_decoder(config, {.rope = {.interleaved = true}, .window = read_window(config)});
  set_biases(config, d);
  d.norm_kind = NormKind::layer;
  d.norm_eps = static_cast<float>(config.number("layer_norm_eps", 0.0, 1.0));
  d.parallel_blocks = true;
  d.names.mlp_in = "";
  d.logit_scale = static_cast<float>(config.number("logit_scale", 1e-6, 1e6));
  if (!config.has("tie_word_embeddings")) d.tied_head = true;
  for (LayerSpec& layer : d.layers) {
    if (layer.type == LayerType::full) layer.attention.rope.reset();
  }
  return d;
}

}  // namespace kvasir::model::families
