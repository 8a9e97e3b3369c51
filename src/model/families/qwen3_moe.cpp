// Qwen 3 MoE (MOD-18): Qwen 3 attention; experts on every decoder_sparse_step-th layer that
// mlp_only_layers doesn't name.
#include <algorithm>

#include "model/detail/decoder_reader.h"
#include "model/families.h"

namespace kvasir::model::families {
namespace {

std::vector<std::uint32_t> mlp_only_layers(const ConfigReader& config) {
  std::vector<std::uint32_t> out;
  const json::Value* list = config.find("mlp_only_layers");
  if (!list) return out;
  const std::size_t n = list->as_array() ? list->as_array()->size() : 0;
  for (const double layer : config.numbers("mlp_only_layers", n, 0, kMaxLayers))
    out.push_back(static_cast<std::uint32_t>(layer));
  return out;
}

}  // namespace

DecoderConfig qwen3_moe(const ConfigReader& config) {
  const bool slides = config.flag_or("use_sliding_window", false);
  DecoderConfig d = read_decoder(config, {.window = slides ? read_window(config) : 0});
  set_biases(config, d);
  MoeSpec moe = read_softmax_moe(config, "moe_intermediate_size");
  moe.renormalize = config.flag_or("norm_topk_prob", false);
  const std::vector<std::uint32_t> dense = mlp_only_layers(config);
  const std::uint32_t step =
      config.has("decoder_sparse_step") ? config.count("decoder_sparse_step", kMaxLayers) : 1;
  for (std::uint32_t i = 0; i < d.layers.size(); ++i) {
    d.layers[i].attention.qk_norm = QkNorm::per_head;
    const bool is_dense = std::find(dense.begin(), dense.end(), i) != dense.end();
    if (!is_dense && (i + 1) % step == 0) d.layers[i].moe = moe;
  }
  return d;
}

}  // namespace kvasir::model::families
