// GLM-4.5 (MOD-29): half rope on part of a head, optional q/k norms, DeepSeek-V3 routing, a shared
// expert, dense first layers.
#include "model/detail/decoder_reader.h"
#include "model/families.h"

namespace kvasir::model::families {

DecoderConfig glm4_moe(const ConfigReader& config) {
  DecoderConfig d = read_decoder(config, {.rope = {.partial_rotary = 0.5}});
  const MoeSpec moe = read_deepseek_moe(config);
  const std::uint32_t first_sparse = config.count_or("first_k_dense_replace", 1, kMaxLayers);
  for (std::uint32_t i = 0; i < d.layers.size(); ++i) {
    AttentionSpec& attention = d.layers[i].attention;
    attention.qkv_bias = read_bias(config, "attention_bias", "self_attn.q_proj.bias");
    const bool has_qk_norm =
        config.flag_or("use_qk_norm", config.files().has("model.layers.0.self_attn.q_norm.weight"));
    attention.qk_norm = has_qk_norm ? QkNorm::per_head : QkNorm::none;
    if (i >= first_sparse) d.layers[i].moe = moe;
  }
  return d;
}

}  // namespace kvasir::model::families
