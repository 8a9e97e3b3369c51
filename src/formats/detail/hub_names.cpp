#include "formats/detail/hub_names.h"

#include <array>

namespace kvasir::formats {
namespace {

constexpr std::array<std::string_view, 16> kOtherTowers{
    "vision_tower.",          "visual.",          "vision_model.",        "vision_embed_tokens.",
    "multi_modal_projector.", "mm_projector.",    "audio_tower.",         "embed_vision.",
    "embed_audio.",           "vision_embedder.", "vit_large_projector.", "connector.",
    "image_newline",          "audio_embedder.",  "vision_encoder.",      "vision_projection."};

}  // namespace

json::Value text_model_config(json::Value config) {
  const json::Value* text = config.find("text_config");
  if (!text || !text->is_object()) return config;
  json::Object out = *text->as_object();
  for (const auto& [key, value] : *config.as_object()) {
    if (key.ends_with("_config") && key != "quantization_config") continue;
    if (!out.find(key)) out.push_back(key, value);
  }
  return out;
}

std::string canonical_name(std::string_view stored) {
  constexpr std::string_view kOuter = "model.language_model.", kInner = "language_model.";
  std::string_view rest = stored;
  if (rest.starts_with(kOuter)) {
    rest.remove_prefix(kOuter.size());
  } else if (rest.starts_with(kInner)) {
    rest.remove_prefix(kInner.size());
  } else {
    return std::string(stored);
  }
  const bool is_rooted =
      rest.starts_with("model.") || rest.starts_with("lm_head.") || rest.starts_with("mtp.");
  return is_rooted ? std::string(rest) : "model." + std::string(rest);
}

bool may_stay_unread(std::string_view canonical) noexcept {
  if (canonical.find("rotary_emb.inv_freq") != std::string_view::npos) return true;
  if (canonical.ends_with("position_ids")) return true;
  if (canonical.starts_with("rope_freqs.") || canonical.starts_with("rope_factors_")) return true;
  if (canonical.starts_with("model.")) canonical.remove_prefix(6);
  if (canonical.starts_with("mtp.")) return true;
  for (const std::string_view tower : kOtherTowers) {
    if (canonical.starts_with(tower)) return true;
  }
  return false;
}

}  // namespace kvasir::formats
