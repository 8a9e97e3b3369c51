#include "formats/detail/hub_names.h"

#include <algorithm>
#include <array>

namespace kvasir::formats {
namespace {

constexpr std::array<std::string_view, 16> kOtherTowers{
    "vision_tower.",          "visual.",          "vision_model.",        "vision_embed_tokens.",
    "multi_modal_projector.", "mm_projector.",    "audio_tower.",         "embed_vision.",
    "embed_audio.",           "vision_embedder.", "vit_large_projector.", "connector.",
    "image_newline",          "audio_embedder.",  "vision_encoder.",      "vision_projection."};

// Ids that end a text, of both places.
json::Value all_of(const json::Value& a, const json::Value& b) {
  json::Array out;
  for (const json::Value* one : {&a, &b}) {
    if (one->is_null()) continue;
    const json::Array own = one->is_array() ? *one->as_array() : json::Array{*one};
    for (const json::Value& id : own) {
      const auto is_same = [&](const json::Value& other) {
        return other.as_int() && id.as_int() && *other.as_int() == *id.as_int();
      };
      if (std::none_of(out.begin(), out.end(), is_same)) out.push_back(id);
    }
  }
  return out;
}

// What tells how the files are stored: null within the text model says nothing.
bool is_of_files(std::string_view key) {
  return key == "quantization_config" || key == "quantization" || key == "tie_word_embeddings" ||
         key == "dtype" || key == "torch_dtype";
}

}  // namespace

json::Value text_model_config(json::Value config) {
  const json::Value* text = config.find("text_config");
  if (!text || !text->is_object()) return config;
  json::Object out = *text->as_object();
  for (const auto& [key, value] : *config.as_object()) {
    if (key.ends_with("_config") && key != "quantization_config") continue;
    const json::Value* inner = out.find(key);
    if (key == "eos_token_id" && inner) out[key] = all_of(*inner, value);
    if (!inner) {
      out.push_back(key, value);
    } else if (inner->is_null() && key != "eos_token_id" && is_of_files(key)) {
      out[key] = value;
    }
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
