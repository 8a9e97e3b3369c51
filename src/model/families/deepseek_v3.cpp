// DeepSeek-V3 (MOD-35): latent attention, dense first layers, then experts chosen by sigmoid scores
// within groups, and a shared expert. DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024.
#include "model/detail/latent_reader.h"
#include "model/families.h"

namespace kvasir::model::families {

DecoderConfig deepseek_v3(const ConfigReader& given) {
  static const json::Value kDefaults = json::Object{{"n_group", 8},
                                                    {"topk_group", 4},
                                                    {"routed_scaling_factor", 2.5},
                                                    {"first_k_dense_replace", 3}};
  const ConfigReader config(given, kDefaults);
  // What the same configuration calls the routing of DeepSeek-V2.
  if (config.text_or("scoring_func", "sigmoid") != "sigmoid")
    config.refuse("scoring_func", "must be sigmoid");
  if (config.text_or("topk_method", "noaux_tc") != "noaux_tc")
    config.refuse("topk_method", "must be noaux_tc");
  return read_latent_decoder(config);
}

}  // namespace kvasir::model::families
