// LFM2 (MOD-33): gated short convolutions between layers of attention with q/k norms.
#include <algorithm>
#include <cmath>

#include "model/detail/decoder_reader.h"
#include "model/families.h"

namespace kvasir::model::families {
namespace {

// The type of every layer, where config.json names the full ones by number.
json::Array layer_types(const ConfigReader& config) {
  const json::Value* list = config.find("full_attn_idxs");
  const std::size_t n = list && list->as_array() ? list->as_array()->size() : 0;
  std::vector<double> full;
  if (list) full = config.numbers("full_attn_idxs", n, 0, kMaxLayers);
  json::Array out;
  for (std::uint32_t i = 0; i < config.count("num_hidden_layers", kMaxLayers); ++i) {
    const bool is_full = !list || std::find(full.begin(), full.end(), double(i)) != full.end();
    out.emplace_back(is_full ? kFullAttention : "conv");
  }
  return out;
}

// Members of older files by the names of later ones.
json::Value defaults(const ConfigReader& config) {
  json::Object out{{"conv_L_cache", 3},
                   {"intermediate_size", 12288},
                   {"rms_norm_eps", config.number_or("norm_eps", 1e-5, 0.0, 1.0)},
                   {"rope_theta", config.number_or("theta", 1000000.0, 1e-3, 1e12)},
                   {"tie_word_embeddings", config.flag_or("tie_embedding", true)}};
  if (!config.has("layer_types")) out["layer_types"] = layer_types(config);
  return out;
}

// ⌊2/3⌋ of the stated width, times a factor, up to a multiple; or as stated.
std::uint32_t intermediate_width(const ConfigReader& config) {
  const std::uint32_t stated = config.has("block_ff_dim")
                                   ? config.count("block_ff_dim", kMaxWidth)
                                   : config.count("intermediate_size", kMaxWidth);
  if (!config.flag_or("block_auto_adjust_ff_dim", true)) return stated;
  const double factor = config.number_or("block_ffn_dim_multiplier", 1.0, 1e-3, 1e3);
  const std::uint32_t multiple =
      config.has("block_multiple_of") ? config.count("block_multiple_of", kMaxWidth) : 256;
  const double wide = std::floor(factor * (2 * stated / 3)),
               rounded = std::ceil(wide / multiple) * multiple;
  if (rounded >= 1 && rounded <= kMaxWidth) return static_cast<std::uint32_t>(rounded);
  config.refuse("intermediate_size", "makes a width that is not from 1 to 1048576");
  return 1;
}

void set_names(const ConfigReader& config, LayerNames& names) {
  names.attention_in = "operator_norm";
  names.mlp_in = "ffn_norm";
  // Some GGUF files call it as other families do.
  if (!config.files().has("model.norm.weight")) names.final_norm = "embedding_norm";
  names.q_norm = "q_layernorm";
  names.k_norm = "k_layernorm";
  names.attention_project = "out_proj";
  names.mlp = "feed_forward";
  names.gate = "w1";
  names.up = "w3";
  names.down = "w2";
}

}  // namespace

DecoderConfig lfm2(const ConfigReader& given) {
  constexpr std::uint32_t kMaxKernel = 64;
  const json::Value missing = defaults(given);
  const ConfigReader config(given, missing);
  DecoderConfig d = read_decoder(config, {.rope = {.theta = 1000000.0}, .recurrent_type = "conv"});
  set_names(config, d.names);
  const ShortConvSpec conv{.kernel = config.count("conv_L_cache", kMaxKernel),
                           .width = d.hidden,
                           .bias = config.flag_or("conv_bias", false)};
  const std::uint32_t intermediate = intermediate_width(config);
  for (LayerSpec& layer : d.layers) {
    layer.mlp.intermediate = intermediate;
    if (layer.is_recurrent())
      layer.short_conv = conv;
    else
      layer.attention.qk_norm = QkNorm::per_head;
  }
  return d;
}

}  // namespace kvasir::model::families
