// Gemma 2 (MOD-22): norms around both blocks, soft caps on scores and logits, every other layer
// slides. "Gemma 2: Improving Open Language Models at a Practical Size", 2024.
#include "model/detail/decoder_reader.h"
#include "model/families.h"

namespace kvasir::model::families {

DecoderConfig gemma2(const ConfigReader& given) {
  static const json::Value kDefaults = json::Object{{"hidden_activation", "gelu_pytorch_tanh"},
                                                    {"head_dim", 256},
                                                    {"max_position_embeddings", 8192},
                                                    {"query_pre_attn_scalar", 256},
                                                    {"sliding_window", 4096},
                                                    {"sliding_window_pattern", 2}};
  const ConfigReader config(given, kDefaults);
  DecoderConfig d = read_decoder(config, {.window = read_window(config)});
  set_biases(config, d);
  set_gemma_blocks(config, d);
  d.norm_plus_one = true;
  // A null means none, an absent member the published models' value.
  const auto softcap = [&](std::string_view name, double other) {
    return static_cast<float>(config.number_or(name, config.says_null(name) ? 0.0 : other, 0, 1e6));
  };
  d.logit_softcap = softcap("final_logit_softcapping", 30.0);
  for (LayerSpec& layer : d.layers) {
    layer.attention.scale = inverse_root(config, "query_pre_attn_scalar");
    layer.attention.softcap = softcap("attn_logit_softcapping", 50.0);
  }
  return d;
}

}  // namespace kvasir::model::families
