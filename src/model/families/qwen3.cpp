// Qwen 3 (MOD-16): RMSNorm on each head of q and k, tied or untied.
#include "model/detail/decoder_reader.h"
#include "model/families.h"

namespace kvasir::model::families {

DecoderConfig qwen3(const ConfigReader& config) {
  DecoderConfig d = read_decoder(config, qwen_traits(config));
  set_biases(config, d);
  for (LayerSpec& layer : d.layers) layer.attention.qk_norm = QkNorm::per_head;
  return d;
}

}  // namespace kvasir::model::families
