// What `kvasir inspect MODEL` shows: the facts of a model file, without running it. Reads no
// weights. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/model_files.h"
#include "json/json.h"

namespace kvasir::formats {

struct TypeTotal {
  std::string type;  // "q4_1"
  std::uint64_t n_tensors = 0, n_parameters = 0, size_bytes = 0;
};

struct ModelDescription {
  std::string path, container;  // "gguf" or "hub folder"
  std::string architecture, model_type;
  std::uint64_t n_parameters = 0, size_bytes = 0;
  // Zero when the configuration does not say.
  std::uint64_t n_layers = 0, hidden_size = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0,
                vocab_size = 0, context_length = 0;
  std::uint64_t n_experts = 0, n_experts_per_token = 0, sliding_window = 0;
  // Latent attention: a token's row of rank + rope dim serves all heads; what a sparse index keeps.
  std::uint64_t latent_rank = 0, latent_rope_dim = 0, index_top_k = 0;
  bool is_embedding_tied = false;
  bool has_random_weights = false;
  std::string
      quantization;  // the type with most bytes among quantized ones; "none" for dense files
  std::vector<TypeTotal> types;     // most bytes first
  std::vector<TensorInfo> tensors;  // in file order
};

ModelDescription describe(const ModelFiles& files);

std::string description_text(const ModelDescription& description,
                             bool with_tensors);  // for people, lines end in '\n'
json::Value description_json(const ModelDescription& description, bool with_tensors);

}  // namespace kvasir::formats
