// GLM-5 (MOD-36): DeepSeek-V3's layers, of which each query attends the positions that a sparse
// index chose; layers may share a choice.
#include "model/detail/latent_reader.h"
#include "model/families.h"

namespace kvasir::model::families {

DecoderConfig glm_moe_dsa(const ConfigReader& given) {
  static const json::Value kDefaults = json::Object{
      {"rms_norm_eps", 1e-5}, {"routed_scaling_factor", 2.5}, {"first_k_dense_replace", 3},
      {"index_topk", 2048},   {"index_head_dim", 128},        {"index_n_heads", 32}};
  const ConfigReader config(given, kDefaults);
  if (!config.flag_or("indexer_rope_interleave", true))
    config.refuse("indexer_rope_interleave", "must be true");
  DecoderConfig d = read_latent_decoder(config);
  read_indexes(config, d);
  return d;
}

}  // namespace kvasir::model::families
