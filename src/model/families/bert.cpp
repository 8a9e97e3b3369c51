// BERT (MOD-37): learned positions, one token type, norms after each sum. Devlin et al., "BERT:
// Pre-training of Deep Bidirectional Transformers", 2019.
#include "model/detail/decoder_reader.h"
#include "model/families.h"

namespace kvasir::model::families {

DecoderConfig bert(const ConfigReader& given) {
  static const json::Value kDefaults =
      json::Object{{"hidden_act", "gelu"}, {"layer_norm_eps", 1e-12}, {"type_vocab_size", 2}};
  const ConfigReader config(given, kDefaults);
  if (config.flag_or("is_decoder", false)) config.refuse("is_decoder", "is not supported");
  if (config.text_or("position_embedding_type", "absolute") != "absolute")
    config.refuse("position_embedding_type", "must be 'absolute'");
  DecoderConfig d = read_decoder(config, {});
  d.ropes.clear();
  d.norm_kind = NormKind::layer;
  d.norm_bias = true;
  d.norm_eps = static_cast<float>(config.number("layer_norm_eps", 0.0, 1.0));
  d.encoder = EncoderSpec{
      .n_positions = config.count("max_position_embeddings", kMaxPositions),
      .n_token_types = config.count("type_vocab_size", kMaxTokenTypes),
      .norms_residual = true,
      .tokens = "embeddings.word_embeddings",
      .positions = "embeddings.position_embeddings",
      .token_types = "embeddings.token_type_embeddings",
      .input_norm = "embeddings.LayerNorm",
      .layer_root = "encoder.layer.",
      .q = "attention.self.query",
      .k = "attention.self.key",
      .v = "attention.self.value",
      .attention_out = "attention.output.dense",
      .mlp_up = "intermediate.dense",
      .mlp_down = "output.dense",
      .attention_norm = "attention.output.LayerNorm",
      .mlp_norm = "output.LayerNorm",
  };
  for (LayerSpec& layer : d.layers) {
    layer.attention.rope.reset();
    layer.attention.qkv_bias = layer.attention.out_bias = layer.mlp.bias = true;
    layer.mlp.is_gated = false;
  }
  return d;
}

}  // namespace kvasir::model::families
