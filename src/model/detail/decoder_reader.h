// What nearly all decoder families read alike from config.json; families/*.cpp change what differs.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/decoder_config.h"
#include "model/detail/config_reader.h"
#include "model/detail/rope.h"

namespace kvasir::model {

struct FamilyTraits {
  RopeDefaults rope = {};
  std::uint32_t window = 0;  // of sliding layers; 0: no layer slides
  std::uint32_t first_windowed_layer =
      0;  // from here on layers slide, unless config.json names layer types
  bool ends_with_full_layer = false;  // whatever config.json says of the last layer
  std::uint32_t full_head_dim = 0;    // of full layers, unless per_layer_config says so; 0: as all
  std::uint32_t full_n_kv_heads = 0;  // same
  // What layer_types calls a recurrent layer; empty: the family has none.
  std::string_view recurrent_type = {};
  // Where layer_types is silent, every so many-th layer is full, the others are recurrent; 0: none.
  std::uint32_t full_interval = 0;
};

// Pre-norm, grouped-query attention with rope, gated MLP; head_dim, windows and ropes of every
// layer (MOD-3, MOD-4).
DecoderConfig read_decoder(const ConfigReader& config, const FamilyTraits& traits);

// Of it what no layer has: widths, the norms' eps, the head, draft layers.
DecoderConfig read_trunk(const ConfigReader& config);
MlpSpec read_mlp(const ConfigReader& config);

// `sliding_window`, 0 when absent, null or as wide as the model's context.
std::uint32_t read_window(const ConfigReader& config);

// Whether a projection has biases: what config.json says; in GGUF files, which say nothing, whether
// the first layer's tensor is there.
bool read_bias(const ConfigReader& config,
               std::string_view flag,
               std::string_view first_layer_tensor);

// attention_bias on q, k, v and o; mlp_bias on gate, up and down; as read_bias() reads them.
void set_biases(const ConfigReader& config, DecoderConfig& decoder);

// Qwen's windows: off unless use_sliding_window, and from max_window_layers on.
FamilyTraits qwen_traits(const ConfigReader& config);

// Of Qwen's hybrids (MOD-19…21, 40, 41, 43): three linear layers for each full one, whose attention
// has an output gate; norm weights centred on zero or not, told by the stored convolution's shape.
DecoderConfig read_qwen_hybrid(const ConfigReader& config, bool fused_inputs);
// Its experts: softmax routing, a shared expert behind a gate. Fused as Qwen 3.5's own files are,
// or apart.
MoeSpec read_qwen_experts(const ConfigReader& config, DecoderConfig& decoder);
// `mlp_only_layers` and `decoder_sparse_step`: whether layer i has experts.
std::vector<bool> read_sparse_layers(const ConfigReader& config, std::size_t n_layers);

// Embeddings × √hidden, rounded as the type that they are stored in asks.
void scale_embeddings(const ConfigReader& config, DecoderConfig& decoder);
// From Gemma 2 on: that, and norms around both blocks.
void set_gemma_blocks(const ConfigReader& config, DecoderConfig& decoder);
// 1 / √ of a number that config.json has.
float inverse_root(const ConfigReader& config, std::string_view name);

// num_experts (or an alias), how many of them a token gets, softmax routing.
MoeSpec read_softmax_moe(const ConfigReader& config,
                         std::string_view intermediate_name,
                         std::string_view top_k_name = "num_experts_per_tok");
// DeepSeek-V3 routing: sigmoid scores, a bias for selection, groups, one shared expert.
MoeSpec read_deepseek_moe(const ConfigReader& config);

}  // namespace kvasir::model
