// ModernBERT (MOD-38): rope, norms before blocks, a gated MLP; most layers see local_attention / 2
// keys on each side and have a rope of their own. Warner et al., "Smarter, Better, Faster, Longer",
// 2024.
#include "model/detail/decoder_reader.h"
#include "model/families.h"

namespace kvasir::model::families {
namespace {

constexpr double kMaxTheta = 1e15;

// What a config.json of the first dialect says in other words, in those of the second.
json::Value defaults_of(const ConfigReader& config) {
  const double theta = config.number_or("global_rope_theta", 160000.0, 1.5, kMaxTheta);
  const double local_theta = config.number_or("local_rope_theta", 10000.0, 1.5, kMaxTheta);
  const std::uint32_t period = config.has("global_attn_every_n_layers")
                                   ? config.count("global_attn_every_n_layers", kMaxLayers)
                                   : 3;
  json::Array types;
  for (std::uint32_t i = 0; i < config.count("num_hidden_layers", kMaxLayers); ++i)
    types.emplace_back(std::string(i % period == 0 ? kFullAttention : kSlidingAttention));
  const auto rope = [](double t) {
    return json::Object{{"rope_type", "default"}, {"rope_theta", t}};
  };
  return json::Object{
      {"hidden_activation", "gelu"},
      {"norm_eps", 1e-5},
      {"local_attention", 128},
      {"layer_types", std::move(types)},
      {"rope_parameters", json::Object{{std::string(kFullAttention), rope(theta)},
                                       {std::string(kSlidingAttention), rope(local_theta)}}}};
}

}  // namespace

DecoderConfig modernbert(const ConfigReader& given) {
  const json::Value defaults = defaults_of(given);
  const ConfigReader config(given, defaults);
  const std::uint32_t local = config.count("local_attention", kMaxPositions);
  DecoderConfig d = read_decoder(config, {.window = local / 2 + 1});
  d.norm_kind = NormKind::layer;
  d.norm_bias = config.flag_or("norm_bias", false);
  d.norm_eps = static_cast<float>(config.number("norm_eps", 0.0, 1.0));
  d.encoder = EncoderSpec{
      .tokens = "embeddings.tok_embeddings",
      .input_norm = "embeddings.norm",
      .layer_root = "layers.",
      .final_norm = "final_norm",
      .qkv = "attn.Wqkv",
      .attention_out = "attn.Wo",
      .mlp_up = "mlp.Wi",
      .mlp_down = "mlp.Wo",
      .attention_norm = "attn_norm",
      .mlp_norm = "mlp_norm",
  };
  const bool attention_bias = config.flag_or("attention_bias", false);
  const bool mlp_bias = config.flag_or("mlp_bias", false);
  for (LayerSpec& layer : d.layers) {
    layer.attention.fused_qkv = true;
    layer.attention.qkv_bias = layer.attention.out_bias = attention_bias;
    layer.mlp.fused_gate_up = true;
    layer.mlp.bias = mlp_bias;
  }
  return d;
}

}  // namespace kvasir::model::families
