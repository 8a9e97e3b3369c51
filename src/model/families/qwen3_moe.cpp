// Qwen 3 MoE (MOD-18): Qwen 3 attention; experts on every decoder_sparse_step-th layer that
// mlp_only_layers doesn't name.
#include "model/detail/decoder_reader.h"
#include "model/families.h"

namespace kvasir::model::families {

DecoderConfig qwen3_moe(const ConfigReader& config) {
  const bool slides = config.flag_or("use_sliding_window", false);
  DecoderConfig d = read_decoder(config, {.window = slides ? read_window(config) : 0});
  set_biases(config, d);
  MoeSpec moe = read_softmax_moe(config, "moe_intermediate_size");
  moe.renormalize = config.flag_or("norm_topk_prob", false);
  const std::vector<bool> sparse = read_sparse_layers(config, d.layers.size());
  for (std::size_t i = 0; i < d.layers.size(); ++i) {
    d.layers[i].attention.qk_norm = QkNorm::per_head;
    if (sparse[i]) d.layers[i].moe = moe;
  }
  return d;
}

}  // namespace kvasir::model::families
