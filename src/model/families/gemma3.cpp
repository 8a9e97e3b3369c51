// Gemma 3 (MOD-23): Gemma 2 without soft caps; norms on each head of q and k, five of six layers
// slide with a rope of their own. "Gemma 3 Technical Report", 2025.
#include "model/detail/decoder_reader.h"
#include "model/families.h"

namespace kvasir::model::families {

DecoderConfig gemma3(const ConfigReader& given) {
  // Published wrappers state only what differs from these.
  static const json::Value kDefaults = json::Object{{"hidden_activation", "gelu_pytorch_tanh"},
                                                    {"head_dim", 256},
                                                    {"hidden_size", 2304},
                                                    {"intermediate_size", 9216},
                                                    {"max_position_embeddings", 131072},
                                                    {"num_attention_heads", 8},
                                                    {"num_hidden_layers", 26},
                                                    {"num_key_value_heads", 4},
                                                    {"query_pre_attn_scalar", 256},
                                                    {"rope_local_base_freq", 10000.0},
                                                    {"rope_theta", 1000000.0},
                                                    {"sliding_window", 4096},
                                                    {"sliding_window_pattern", 6},
                                                    {"vocab_size", 262208}};
  const ConfigReader config(given, kDefaults);
  if (config.flag_or("use_bidirectional_attention", false))
    config.refuse("use_bidirectional_attention", "is not supported");
  const double local_theta = config.number("rope_local_base_freq", 1.5, 1e15);
  DecoderConfig d =
      read_decoder(config, {.rope = {.sliding_theta = local_theta}, .window = read_window(config)});
  set_biases(config, d);
  set_gemma_blocks(config, d);
  d.norm_plus_one = true;
  d.logit_softcap = static_cast<float>(config.number_or("final_logit_softcapping", 0, 0, 1e6));
  for (LayerSpec& layer : d.layers) {
    layer.attention.scale = inverse_root(config, "query_pre_attn_scalar");
    layer.attention.softcap =
        static_cast<float>(config.number_or("attn_logit_softcapping", 0, 0, 1e6));
    layer.attention.qk_norm = QkNorm::per_head;
  }
  return d;
}

}  // namespace kvasir::model::families
