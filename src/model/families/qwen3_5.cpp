// Qwen 3.5 (MOD-20, 21): gated delta layers with inputs apart; dense, or experts on every layer and
// a shared one behind a gate.
#include "model/detail/decoder_reader.h"
#include "model/families.h"

namespace kvasir::model::families {
namespace {

const json::Value& defaults() {
  static const json::Value kDefaults =
      json::Object{{"full_attention_interval", 4}, {"head_dim", 256},
                   {"intermediate_size", 12288},   {"linear_conv_kernel_dim", 4},
                   {"linear_key_head_dim", 128},   {"linear_num_key_heads", 16},
                   {"linear_num_value_heads", 32}, {"linear_value_head_dim", 128}};
  return kDefaults;
}

}  // namespace

DecoderConfig qwen3_5(const ConfigReader& given) {
  return read_qwen_hybrid(ConfigReader(given, defaults()), /*fused_inputs=*/false);
}

DecoderConfig qwen3_5_moe(const ConfigReader& given) {
  const ConfigReader config(given, defaults());
  DecoderConfig d = read_qwen_hybrid(config, /*fused_inputs=*/false);
  const MoeSpec moe = read_qwen_experts(config, d);
  for (LayerSpec& layer : d.layers) layer.moe = moe;
  return d;
}

}  // namespace kvasir::model::families
