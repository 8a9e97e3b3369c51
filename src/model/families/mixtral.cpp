// Mixtral (MOD-14): Mistral with experts; softmax over all, top-k, renormalised. Jiang et al.,
// "Mixtral of Experts", 2024.
#include "model/detail/decoder_reader.h"
#include "model/families.h"

namespace kvasir::model::families {

DecoderConfig mixtral(const ConfigReader& config) {
  DecoderConfig d = read_decoder(config, {.rope = {.theta = 1e6}, .window = read_window(config)});
  d.names.router = "block_sparse_moe.gate";
  d.names.expert_gate = "block_sparse_moe.experts.*.w1";
  d.names.expert_down = "block_sparse_moe.experts.*.w2";
  d.names.expert_up = "block_sparse_moe.experts.*.w3";
  MoeSpec moe = read_softmax_moe(config, "intermediate_size");
  moe.renormalize = true;
  for (LayerSpec& layer : d.layers) layer.moe = moe;
  return d;
}

}  // namespace kvasir::model::families
