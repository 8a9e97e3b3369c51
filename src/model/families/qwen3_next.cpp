// Qwen3-Next (MOD-19): gated delta layers with fused inputs, experts and a shared expert behind a
// gate.
#include "model/detail/decoder_reader.h"
#include "model/families.h"

namespace kvasir::model::families {

DecoderConfig qwen3_next(const ConfigReader& given) {
  static const json::Value kDefaults =
      json::Object{{"full_attention_interval", 4}, {"head_dim", 256},
                   {"linear_conv_kernel_dim", 4},  {"linear_key_head_dim", 128},
                   {"linear_num_key_heads", 16},   {"linear_num_value_heads", 32},
                   {"linear_value_head_dim", 128}};
  const ConfigReader config(given, kDefaults);
  DecoderConfig d = read_qwen_hybrid(config, /*fused_inputs=*/true);
  const MoeSpec moe = read_qwen_experts(config, d);
  const std::vector<bool> sparse = read_sparse_layers(config, d.layers.size());
  for (std::size_t i = 0; i < d.layers.size(); ++i) {
    if (sparse[i]) d.layers[i].moe = moe;
  }
  return d;
}

}  // namespace kvasir::model::families
