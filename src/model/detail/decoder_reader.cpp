#include "model/detail/decoder_reader.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace kvasir::model {
namespace {

ops::Activation read_activation(const ConfigReader& config) {
  // The newer name counts where a file has both.
  const std::string name =
      config.text_or("hidden_activation", config.text_or("hidden_act", "silu"));
  if (name == "silu" || name == "swish") return ops::Activation::silu;
  if (name == "gelu") return ops::Activation::gelu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new" || name == "gelu_fast")
    return ops::Activation::gelu_tanh;
  config.refuse("hidden_act",
                "'" + name + "' is not supported; supported: silu, gelu, gelu_pytorch_tanh");
  return ops::Activation::silu;
}

// The scale follows the head's size.
void set_head_dim(const ConfigReader& config, std::uint32_t head_dim, AttentionSpec& a) {
  a.head_dim = head_dim;
  if (a.head_dim > kMaxHeadDim || std::uint64_t{a.n_heads} * a.head_dim > kMaxWidth) {
    config.refuse("head_dim", "makes heads too large");
    a.head_dim = 2;
  }
  a.scale = static_cast<float>(1.0 / std::sqrt(double(a.head_dim)));
}

void set_kv_heads(const ConfigReader& config, std::uint32_t n_kv_heads, AttentionSpec& a) {
  a.n_kv_heads = n_kv_heads;
  if (a.n_heads % a.n_kv_heads != 0) {
    config.refuse("num_attention_heads", "must be a multiple of num_key_value_heads");
    a.n_kv_heads = a.n_heads;
  }
}

AttentionSpec read_attention(const ConfigReader& config, std::uint32_t hidden) {
  AttentionSpec a;
  a.n_heads = config.count("num_attention_heads", kMaxHeads);
  const bool has_kv_heads = config.has("num_key_value_heads");
  set_kv_heads(config, has_kv_heads ? config.count("num_key_value_heads", kMaxHeads) : a.n_heads,
               a);
  if (config.has("head_dim")) {
    set_head_dim(config, config.count("head_dim", kMaxHeadDim), a);
  } else {
    if (hidden % a.n_heads != 0)
      config.refuse("hidden_size", "must be a multiple of num_attention_heads");
    set_head_dim(config, std::max(hidden / a.n_heads, 1u), a);
  }
  return a;
}

// What a layer has of its own: per_layer_config (layer → members), else what the family says of
// full layers.
void set_own_shape(const ConfigReader& config,
                   const FamilyTraits& traits,
                   std::size_t i,
                   LayerSpec& layer) {
  AttentionSpec& a = layer.attention;
  if (!config.has("per_layer_config")) {
    if (layer.type != LayerType::full) return;
    if (traits.full_head_dim) set_head_dim(config, traits.full_head_dim, a);
    if (traits.full_n_kv_heads) set_kv_heads(config, traits.full_n_kv_heads, a);
    return;
  }
  const ConfigObject all = config.object("per_layer_config");
  const std::string key = std::to_string(i);
  if (!all.has(key)) return;
  const ConfigObject own = all.object(key);
  for (const std::string& name : own.names()) {
    if (name != "head_dim" && name != "num_key_value_heads")
      own.refuse(name, "is not supported for single layers");
  }
  if (own.has("head_dim")) set_head_dim(config, own.count("head_dim", kMaxHeadDim), a);
  if (own.has("num_key_value_heads"))
    set_kv_heads(config, own.count("num_key_value_heads", kMaxHeads), a);
}

// The layer's type by name: layer_types, else a pattern (every n-th layer is full), else the
// family's rule. Missing = full.
std::vector<LayerType> read_layer_types(const ConfigReader& config,
                                        const FamilyTraits& traits,
                                        std::uint32_t n_layers) {
  std::vector<LayerType> out(n_layers, LayerType::full);
  if (config.has("layer_types")) {
    const json::Array* types = config.find("layer_types")->as_array();
    if (!types) config.refuse("layer_types", "must be an array");
    for (std::size_t i = 0; types && i < std::min<std::size_t>(n_layers, types->size()); ++i) {
      if ((*types)[i].is_null()) continue;
      const std::string* type = (*types)[i].as_string();
      if (type && *type == kSlidingAttention) out[i] = LayerType::sliding;
      const bool is_recurrent = type && !type->empty() && *type == traits.recurrent_type;
      if (is_recurrent) out[i] = LayerType::recurrent;
      if (!type || (*type != kSlidingAttention && *type != kFullAttention && !is_recurrent)) {
        std::string supported = "full_attention, sliding_attention";
        if (!traits.recurrent_type.empty()) supported.append(", ").append(traits.recurrent_type);
        config.refuse("layer_types",
                      "has '" + (type ? *type : "?") + "', supported here: " + supported);
      }
    }
    if (traits.ends_with_full_layer) out.back() = LayerType::full;
    return out;
  }
  const std::uint32_t pattern = config.count_or("sliding_window_pattern", 0, kMaxLayers);
  for (std::uint32_t i = 0; i < n_layers; ++i) {
    if (traits.full_interval) {
      if ((i + 1) % traits.full_interval != 0) out[i] = LayerType::recurrent;
      continue;
    }
    const bool slides = pattern ? (i + 1) % pattern != 0 : i >= traits.first_windowed_layer;
    if (slides && (pattern || traits.window)) out[i] = LayerType::sliding;
  }
  if (traits.ends_with_full_layer) out.back() = LayerType::full;
  return out;
}

// One rope for each layer type and head size in use; types share it when rope_parameters is flat.
class Ropes {
 public:
  Ropes(const ConfigReader& config, const RopeDefaults& defaults, DecoderConfig& decoder)
      : config_(config), defaults_(defaults), decoder_(decoder) {
    const ConfigObject rope = config.object("rope_parameters");
    per_type_ = rope.has(kFullAttention) || rope.has(kSlidingAttention) || defaults.sliding_theta;
  }
  std::uint32_t index_of(LayerType type, std::uint32_t head_dim) {
    const auto key = std::pair(per_type_ ? type : LayerType::full, head_dim);
    const auto [it, is_new] = index_.try_emplace(key, decoder_.ropes.size());
    if (!is_new) return it->second;
    RopeReading reading = read_rope(
        config_, type == LayerType::full ? kFullAttention : kSlidingAttention, head_dim, defaults_);
    decoder_.max_positions = decoder_.ropes.empty()
                                 ? reading.max_positions
                                 : std::min(decoder_.max_positions, reading.max_positions);
    if (!reading.choice.empty()) decoder_.rope_choice = std::move(reading.choice);
    decoder_.ropes.push_back(std::move(reading.spec));
    return it->second;
  }

 private:
  const ConfigReader& config_;
  const RopeDefaults& defaults_;
  DecoderConfig& decoder_;
  bool per_type_ = false;
  std::map<std::pair<LayerType, std::uint32_t>, std::uint32_t> index_;
};

}  // namespace

DecoderConfig read_trunk(const ConfigReader& config) {
  DecoderConfig d;
  d.hidden = config.count("hidden_size", kMaxWidth);
  d.vocab = config.count("vocab_size", kMaxVocab);
  d.norm_eps = static_cast<float>(config.number_or("rms_norm_eps", 1e-6, 0.0, 1.0));
  d.tied_head = config.flag_or("tie_word_embeddings", !config.files().has("lm_head.weight"));
  d.n_draft_layers = config.count_or("num_nextn_predict_layers", 0, kMaxLayers);
  return d;
}

MlpSpec read_mlp(const ConfigReader& config) {
  MlpSpec mlp;
  mlp.intermediate = config.count("intermediate_size", kMaxWidth);
  mlp.activation = read_activation(config);
  return mlp;
}

DecoderConfig read_decoder(const ConfigReader& config, const FamilyTraits& traits) {
  DecoderConfig d = read_trunk(config);
  LayerSpec common;
  common.attention = read_attention(config, d.hidden);
  common.mlp = read_mlp(config);
  const std::uint32_t n_layers = config.count("num_hidden_layers", kMaxLayers);
  Ropes ropes(config, traits.rope, d);
  for (const LayerType type : read_layer_types(config, traits, n_layers)) {
    LayerSpec& layer = d.layers.emplace_back(common);
    layer.type = type;
    if (layer.is_recurrent()) {
      layer.attention = {};
      continue;
    }
    layer.attention.window = type == LayerType::sliding ? traits.window : 0;
    set_own_shape(config, traits, d.layers.size() - 1, layer);
    layer.attention.rope = ropes.index_of(type, layer.attention.head_dim);
  }
  if (d.ropes.empty()) d.max_positions = config.count("max_position_embeddings", kMaxPositions);
  return d;
}

std::uint32_t read_window(const ConfigReader& config) {
  if (config.says_null("sliding_window")) return 0;
  const std::uint32_t window = config.count_or("sliding_window", 0, UINT32_MAX);
  return window >= config.count("max_position_embeddings", kMaxPositions) ? 0 : window;
}

bool read_bias(const ConfigReader& config,
               std::string_view flag,
               std::string_view first_layer_tensor) {
  const bool is_stored = config.files().has("model.layers.0." + std::string(first_layer_tensor));
  return config.files().container() == formats::Container::gguf ? is_stored
                                                                : config.flag_or(flag, is_stored);
}

void set_biases(const ConfigReader& config, DecoderConfig& decoder) {
  const bool qkv = read_bias(config, "attention_bias", "self_attn.q_proj.bias");
  const bool out = read_bias(config, "attention_bias", "self_attn.o_proj.bias");
  const bool mlp = read_bias(config, "mlp_bias", "mlp.gate_proj.bias");
  for (LayerSpec& layer : decoder.layers) {
    layer.attention.qkv_bias = qkv;
    layer.attention.out_bias = out;
    layer.mlp.bias = mlp;
  }
}

FamilyTraits qwen_traits(const ConfigReader& config) {
  FamilyTraits traits;
  traits.window = config.flag_or("use_sliding_window", false) ? read_window(config) : 0;
  traits.first_windowed_layer = config.count_or("max_window_layers", 28, kMaxLayers);
  return traits;
}

float inverse_root(const ConfigReader& config, std::string_view name) {
  return static_cast<float>(1.0 / std::sqrt(config.number(name, 1e-6, 1e9)));
}

void scale_embeddings(const ConfigReader& config, DecoderConfig& decoder) {
  decoder.embedding_scale = static_cast<float>(std::sqrt(double(decoder.hidden)));
  const formats::TensorInfo* table = config.files().find("model.embed_tokens.weight");
  decoder.embedding_scale_type = table && table->type == "f16"   ? DType::f16
                                 : table && table->type == "f32" ? DType::f32
                                                                 : DType::bf16;
}

void set_gemma_blocks(const ConfigReader& config, DecoderConfig& decoder) {
  scale_embeddings(config, decoder);
  decoder.names.attention_out = "post_attention_layernorm";
  decoder.names.mlp_in = "pre_feedforward_layernorm";
  decoder.names.mlp_out = "post_feedforward_layernorm";
}

MoeSpec read_softmax_moe(const ConfigReader& config,
                         std::string_view intermediate_name,
                         std::string_view top_k_name) {
  MoeSpec moe;
  for (const std::string_view name : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    if (config.has(name)) moe.n_experts = config.count(name, kMaxExperts);
    if (moe.n_experts) break;
  }
  if (!moe.n_experts) config.refuse("num_experts", "is missing");
  moe.n_experts = std::max(moe.n_experts, 1u);
  moe.top_k = config.count(top_k_name, kMaxExperts);
  if (moe.top_k > moe.n_experts) config.refuse(top_k_name, "must not exceed the number of experts");
  moe.top_k = std::min(moe.top_k, moe.n_experts);
  moe.intermediate = config.count(intermediate_name, kMaxWidth);
  moe.activation = read_activation(config);
  return moe;
}

MoeSpec read_deepseek_moe(const ConfigReader& config) {
  MoeSpec moe = read_softmax_moe(config, "moe_intermediate_size");
  moe.score = ops::RouterScore::sigmoid;
  moe.has_selection_bias = true;
  moe.renormalize = config.flag_or("norm_topk_prob", true);
  moe.scale = static_cast<float>(config.number_or("routed_scaling_factor", 1.0, 1e-6, 1e6));
  const auto one_or_more = [&](std::string_view name) {
    return config.has(name) ? config.count(name, kMaxExperts) : 1;
  };
  moe.n_groups = one_or_more("n_group");
  moe.topk_groups = one_or_more("topk_group");
  const std::uint32_t group =
      moe.n_experts / moe.n_groups;  // a group's score is the sum of its best two
  const bool is_even = moe.n_experts % moe.n_groups == 0 && (moe.n_groups == 1 || group >= 2);
  if (!is_even) config.refuse("n_group", "must divide n_routed_experts into groups of two or more");
  if (moe.topk_groups > moe.n_groups) config.refuse("topk_group", "must not exceed n_group");
  if (is_even && moe.topk_groups * group < moe.top_k)
    config.refuse("topk_group", "leaves fewer experts than num_experts_per_tok");
  const std::uint32_t n_shared = config.count_or("n_shared_experts", 1, kMaxExperts);
  if (std::uint64_t{n_shared} * moe.intermediate > kMaxWidth)
    config.refuse("n_shared_experts", "makes the shared expert too large");
  else
    moe.shared_intermediate = n_shared * moe.intermediate;
  return moe;
}

}  // namespace kvasir::model
