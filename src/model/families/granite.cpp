// Granite 3 (MOD-30): Llama with multipliers on embeddings, residuals, attention scores and logits.
#include "model/detail/decoder_reader.h"
#include "model/families.h"

namespace kvasir::model::families {

DecoderConfig granite(const ConfigReader& config) {
  DecoderConfig d = read_decoder(config, {});
  set_biases(config, d);
  const auto multiplier = [&](std::string_view name) {
    return static_cast<float>(config.number_or(name, 1.0, 1e-6, 1e6));
  };
  d.embedding_scale = multiplier("embedding_multiplier");
  d.residual_scale = multiplier("residual_multiplier");
  d.logit_scale = 1.0f / multiplier("logits_scaling");
  for (LayerSpec& layer : d.layers) layer.attention.scale = multiplier("attention_multiplier");
  return d;
}

}  // namespace kvasir::model::families
