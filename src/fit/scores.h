// The attention-score term (FIT-7): memory of attentions that materialise their scores. An estimate
// for admission; nothing computed depends on it. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "json/json.h"

namespace kvasir::fit {

// What a backend declares of its attention.
struct AttentionMemory {
  bool fuses_all = true;  // tiled with online softmax: scores never exist
  std::vector<std::uint32_t> fused_head_dims = {};
  std::uint64_t fused_max_queries = 0;  // up to this many queries are fused whatever the head dim
  std::uint64_t score_bytes = 0;        // of one score
};
AttentionMemory tiled_attention();  // cpu, cuda
AttentionMemory ref_attention();
AttentionMemory mlx_attention();

enum class ScoreLayer : std::uint8_t { full, sliding, recurrent };

struct ScoreFacts {
  std::uint64_t n_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t global_head_dim = 0;    // of layers without a window
  std::uint64_t window = 0;             // of sliding layers; 0: they see everything
  std::uint64_t n_layers = 0;           // num_hidden_layers; 0: as many as layer_types
  std::vector<ScoreLayer> layer_types;  // layers past its end are full
};

// From a config.json in Hugging Face terms. Unknown layer types are full: the larger estimate.
ScoreFacts score_facts_of(const json::Value& config);

// Bytes of the scores of one step of min(chunk, n) queries over n keys: the largest layer's, as one
// layer is live at a time.
std::uint64_t score_bytes(const ScoreFacts& facts,
                          const AttentionMemory& attention,
                          std::uint64_t n,
                          std::uint64_t chunk) noexcept;

}  // namespace kvasir::fit
