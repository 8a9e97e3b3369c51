#include "fit/scores.h"

#include <algorithm>
#include <string>

#include "fit/detail/saturating.h"

namespace kvasir::fit {
namespace {

constexpr std::int64_t kMaxLayers = 1 << 16;

ScoreLayer layer_type_of(const json::Value& name) {
  const std::string* text = name.as_string();
  if (!text) return ScoreLayer::full;
  if (*text == "sliding_attention") return ScoreLayer::sliding;
  for (const std::string_view recurrent : {"linear_attention", "conv", "recurrent", "mamba"})
    if (*text == recurrent) return ScoreLayer::recurrent;
  return ScoreLayer::full;
}

std::int64_t natural(const json::Value& config, std::string_view member, std::int64_t without) {
  return std::clamp<std::int64_t>(config.int_or(member, without), 0, 1 << 30);
}

}  // namespace

AttentionMemory tiled_attention() { return {}; }
AttentionMemory ref_attention() {
  return {.fuses_all = false, .fused_head_dims = {}, .fused_max_queries = 0, .score_bytes = 4};
}
AttentionMemory mlx_attention() {
  return {.fuses_all = false,
          .fused_head_dims = {64, 72, 80, 96, 128},
          .fused_max_queries = 8,
          .score_bytes = 2};
}

ScoreFacts score_facts_of(const json::Value& config) {
  ScoreFacts out;
  const std::int64_t heads = natural(config, "num_attention_heads", 0);
  const std::int64_t hidden = natural(config, "hidden_size", 0);
  const std::int64_t dim = natural(config, "head_dim", heads > 0 ? hidden / heads : 0);
  out.n_heads = static_cast<std::uint64_t>(heads);
  out.head_dim = static_cast<std::uint32_t>(dim);
  out.global_head_dim = static_cast<std::uint32_t>(natural(config, "global_head_dim", dim));
  out.window = static_cast<std::uint64_t>(natural(config, "sliding_window", 0));
  out.n_layers =
      static_cast<std::uint64_t>(std::min(natural(config, "num_hidden_layers", 0), kMaxLayers));
  const json::Value* types = config.find("layer_types");
  if (types && types->as_array()) {
    for (const json::Value& type : *types->as_array())
      out.layer_types.push_back(layer_type_of(type));
  }
  return out;
}

std::uint64_t score_bytes(const ScoreFacts& facts,
                          const AttentionMemory& attention,
                          std::uint64_t n,
                          std::uint64_t chunk) noexcept {
  const std::uint64_t q = std::min(chunk, n);
  if (attention.fuses_all || facts.n_heads == 0 || q <= attention.fused_max_queries) return 0;
  const std::uint64_t n_layers = facts.n_layers > 0 ? facts.n_layers : facts.layer_types.size();
  std::uint64_t most_keys = 0;
  for (std::uint64_t i = 0; i < n_layers; ++i) {
    const ScoreLayer type = i < facts.layer_types.size() ? facts.layer_types[i] : ScoreLayer::full;
    if (type == ScoreLayer::recurrent) continue;
    const bool is_windowed = type == ScoreLayer::sliding && facts.window > 0;
    const std::uint32_t dim = is_windowed ? facts.head_dim : facts.global_head_dim;
    const auto& fused = attention.fused_head_dims;
    if (std::find(fused.begin(), fused.end(), dim) != fused.end()) continue;
    most_keys = std::max(most_keys, is_windowed ? std::min(n, plus(facts.window, q)) : n);
  }
  return times(times(facts.n_heads, q), times(most_keys, attention.score_bytes));
}

}  // namespace kvasir::fit
