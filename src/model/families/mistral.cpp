// Mistral (MOD-13): Llama with a sliding window on all layers, if one is set.
#include "model/detail/decoder_reader.h"
#include "model/families.h"

namespace kvasir::model::families {

DecoderConfig mistral(const ConfigReader& config) {
  return read_decoder(config, {.window = read_window(config)});
}

}  // namespace kvasir::model::families
