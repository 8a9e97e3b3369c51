#include "model/detail/latent_reader.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "model/detail/decoder_reader.h"
#include "model/detail/rope.h"

namespace kvasir::model {
namespace {

// Norms inside the attention have this eps whatever rms_norm_eps says.
constexpr float kInnerNormEps = 1e-6f;

LatentAttentionSpec read_latent_attention(const ConfigReader& config) {
  LatentAttentionSpec a;
  a.n_heads = config.count("num_attention_heads", kMaxHeads);
  a.q_rank = config.has("q_lora_rank") ? config.count("q_lora_rank", kMaxWidth) : 0;
  a.kv_rank = config.count("kv_lora_rank", kMaxHeadDim);
  a.nope_dim = config.count("qk_nope_head_dim", kMaxHeadDim);
  a.rope_dim = config.count("qk_rope_head_dim", kMaxHeadDim);
  a.v_dim = config.count("v_head_dim", kMaxHeadDim);
  const std::uint64_t widest =
      a.n_heads *
      std::max<std::uint64_t>({a.kv_rank, a.nope_dim + a.rope_dim, a.nope_dim + a.v_dim});
  if (widest > kMaxWidth) {
    config.refuse("num_attention_heads", "makes heads too large");
    a.n_heads = 1;
  }
  a.norm_eps = kInnerNormEps;
  a.bias = read_bias(config, "attention_bias", "self_attn.kv_a_proj_with_mqa.bias");
  return a;
}

// The rope of the heads' last columns, and the scale of scores with it.
void read_positions(const ConfigReader& config, DecoderConfig& d, LatentAttentionSpec& a) {
  RopeReading rope = read_rope(config, kFullAttention, a.rope_dim,
                               {.interleaved = config.flag_or("rope_interleave", true)});
  a.scale = static_cast<float>(rope.score_scale / std::sqrt(double(a.q_head_dim())));
  d.max_positions = rope.max_positions;
  d.rope_choice = std::move(rope.choice);
  d.ropes.push_back(std::move(rope.spec));
}

// Of each of n layers, whether an array of config.json has the second of two names; empty when
// there is no such array. More entries than layers are those of draft layers.
std::vector<bool> read_either(const ConfigReader& config,
                              std::string_view name,
                              std::size_t n,
                              std::string_view first,
                              std::string_view second) {
  if (!config.has(name)) return {};
  const json::Array* const entries = config.find(name)->as_array();
  std::vector<bool> out(n, false);
  if (!entries || entries->size() < n) {
    config.refuse(name, "must be an array with an entry a layer");
    return out;
  }
  for (std::size_t i = 0; i < n; ++i) {
    const std::string* const entry = (*entries)[i].as_string();
    if (!entry || (*entry != first && *entry != second)) {
      config.refuse(name, "has '" + (entry ? *entry : "?") + "', supported: " + std::string(first) +
                              ", " + std::string(second));
      return out;
    }
    out[i] = *entry == second;
  }
  return out;
}

// mlp_layer_types, else from first_k_dense_replace on every moe_layer_freq-th.
std::vector<bool> read_expert_layers(const ConfigReader& config, std::size_t n) {
  std::vector<bool> out = read_either(config, "mlp_layer_types", n, "dense", "sparse");
  if (!out.empty()) return out;
  const std::uint32_t first = config.count_or("first_k_dense_replace", 0, kMaxLayers);
  const std::uint32_t every =
      config.has("moe_layer_freq") ? config.count("moe_layer_freq", kMaxLayers) : 1;
  for (std::size_t i = 0; i < n; ++i) out.push_back(i >= first && i % every == 0);
  return out;
}

// "FFSS…": full or shared, a letter a layer.
std::vector<bool> read_pattern(const ConfigReader& config,
                               const std::string& pattern,
                               std::size_t n) {
  std::vector<bool> out(n, false);
  if (pattern.size() < n || pattern.find_first_not_of("FS") != std::string::npos) {
    config.refuse("index_topk_pattern", "must have an F or S a layer");
    return out;
  }
  for (std::size_t i = 0; i < n; ++i) out[i] = pattern[i] == 'S';
  return out;
}

// Of each layer, whether it shares: by name, by a pattern, or all but every index_topk_freq-th
// from index_skip_topk_offset on.
std::vector<bool> read_shared_indexes(const ConfigReader& config, std::size_t n) {
  for (const std::string_view name : {"indexer_types", "index_topk_pattern"}) {
    if (const json::Value* given = config.find(name)) {
      if (const std::string* pattern = given->as_string()) return read_pattern(config, *pattern, n);
      return read_either(config, name, n, "full", "shared");
    }
  }
  const std::size_t every = std::max(config.count_or("index_topk_freq", 1, kMaxLayers), 1u),
                    offset = config.count_or("index_skip_topk_offset", 2, kMaxLayers);
  std::vector<bool> out;
  for (std::size_t i = 0; i < n; ++i)
    out.push_back((i + 1 > offset ? i + 1 - offset : 0) % every != 0);
  return out;
}

}  // namespace

DecoderConfig read_latent_decoder(const ConfigReader& config) {
  DecoderConfig d = read_trunk(config);
  LayerSpec common;
  common.mlp = read_mlp(config);
  common.latent = read_latent_attention(config);
  read_positions(config, d, *common.latent);
  const MoeSpec moe = read_deepseek_moe(config);
  for (const bool is_sparse :
       read_expert_layers(config, config.count("num_hidden_layers", kMaxLayers))) {
    LayerSpec& layer = d.layers.emplace_back(common);
    if (is_sparse) layer.moe = moe;
  }
  return d;
}

void read_indexes(const ConfigReader& config, DecoderConfig& decoder) {
  IndexSpec index;
  index.n_heads = config.count("index_n_heads", kMaxHeads);
  index.dim = config.count("index_head_dim", kMaxHeadDim);
  index.top_k = std::min(config.count("index_topk", kMaxPositions), decoder.max_positions);
  if (std::uint64_t{index.n_heads} * index.dim > kMaxWidth) {
    config.refuse("index_n_heads", "makes the index too large");
    index.n_heads = 1;
  }
  const LatentAttentionSpec& first = *decoder.layers.front().latent;
  if (index.dim < first.rope_dim)
    config.refuse("index_head_dim", "must be at least qk_rope_head_dim");
  if (first.q_rank == 0) config.refuse("q_lora_rank", "is missing");
  const std::vector<bool> is_shared = read_shared_indexes(config, decoder.layers.size());
  if (is_shared.front()) config.refuse("indexer_types", "must begin with a full layer");
  for (std::size_t i = 0; i < decoder.layers.size(); ++i) {
    index.is_shared = is_shared[i];
    decoder.layers[i].latent->index = index;
  }
}

}  // namespace kvasir::model
