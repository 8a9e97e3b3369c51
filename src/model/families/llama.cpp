// Llama 1-3 and everything of its shape (MOD-10, 11, 12): Touvron et al., "LLaMA", 2023.
#include "model/detail/decoder_reader.h"
#include "model/families.h"

namespace kvasir::model::families {

DecoderConfig llama(const ConfigReader& config) {
  // Llama itself has no windows; remaps of its shape say so layer by layer.
  DecoderConfig d =
      read_decoder(config, {.window = config.has("layer_types") ? read_window(config) : 0});
  set_biases(config, d);
  return d;
}

}  // namespace kvasir::model::families
