// Gemma 1: Llama with scaled embeddings, norm weights centred on zero and a GELU gate. "Gemma: Open
// Models Based on Gemini Research and Technology", 2024.
#include "model/detail/decoder_reader.h"
#include "model/families.h"

namespace kvasir::model::families {

DecoderConfig gemma(const ConfigReader& given) {
  static const json::Value kDefaults =
      json::Object{{"head_dim", 256}, {"max_position_embeddings", 8192}};
  const ConfigReader config(given, kDefaults);
  DecoderConfig d = read_decoder(config, {});
  set_biases(config, d);
  scale_embeddings(config, d);
  d.norm_plus_one = true;
  // Early files say "gelu" and mean its tanh form; hidden_activation, where present, says so.
  for (LayerSpec& layer : d.layers) layer.mlp.activation = ops::Activation::gelu_tanh;
  return d;
}

}  // namespace kvasir::model::families
