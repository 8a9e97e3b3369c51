// Phi 3, 3.5 and 4 (MOD-26): fused projections, longrope, partial rotary. Abdin et al., "Phi-3
// Technical Report", 2024.
#include "model/detail/decoder_reader.h"
#include "model/families.h"

namespace kvasir::model::families {

DecoderConfig phi3(const ConfigReader& config) {
  DecoderConfig d = read_decoder(config, {.window = read_window(config)});
  for (LayerSpec& layer : d.layers) {
    layer.attention.fused_qkv = true;
    layer.mlp.fused_gate_up = true;
  }
  return d;
}

}  // namespace kvasir::model::families
