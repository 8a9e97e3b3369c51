// Qwen 2 and 2.5 (MOD-15): biases on q, k, v; windows only on request, and from max_window_layers
// on.
#include "model/detail/decoder_reader.h"
#include "model/families.h"

namespace kvasir::model::families {

DecoderConfig qwen2(const ConfigReader& config) {
  DecoderConfig d = read_decoder(config, qwen_traits(config));
  for (LayerSpec& layer : d.layers) layer.attention.qkv_bias = true;
  return d;
}

}  // namespace kvasir::model::families
