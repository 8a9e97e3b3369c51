// SmolLM 3 (MOD-31): Llama whose no_rope_layers say 0 for layers without positions.
#include "model/detail/decoder_reader.h"
#include "model/families.h"

namespace kvasir::model::families {

DecoderConfig smollm3(const ConfigReader& config) {
  const std::uint32_t window =
      config.flag_or("use_sliding_window", false) ? read_window(config) : 0;
  DecoderConfig d = read_decoder(config, {.rope = {.theta = 2e6}, .window = window});
  set_biases(config, d);
  const std::size_t n_layers = d.layers.size();
  const std::uint32_t interval =
      config.has("no_rope_layer_interval") ? config.count("no_rope_layer_interval", kMaxLayers) : 4;
  std::vector<double> has_rope;
  if (config.has("no_rope_layers")) has_rope = config.numbers("no_rope_layers", n_layers, 0, 1);
  for (std::size_t i = 0; i < n_layers; ++i) {
    AttentionSpec& attention = d.layers[i].attention;
    const bool ropes = has_rope.empty() ? (i + 1) % interval != 0 : has_rope[i] != 0.0;
    if (!ropes) attention.rope.reset();
    // Without layer_types it is the layers without positions that slide.
    if (!config.has("layer_types")) attention.window = ropes ? 0 : window;
  }
  return d;
}

}  // namespace kvasir::model::families
