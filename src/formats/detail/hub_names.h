// Hugging Face names: configuration of the text model inside a wrapper, tensor names without the
// wrapper's prefix, and the tensors that a text model may leave unread without anyone being told.
#pragma once

#include <string>
#include <string_view>

#include "json/json.h"

namespace kvasir::formats {

// config.json → that of the text model: `text_config` lifted; members that only the wrapper has
// (quantization, tied embeddings, token ids …) stay, those of other towers go. A configuration
// without `text_config` is returned as it is.
json::Value text_model_config(json::Value config);

// "language_model.model.layers.0.…" and "model.language_model.layers.0.…" → "model.layers.0.…".
std::string canonical_name(std::string_view stored);

// rotary_emb.inv_freq, position_ids, mtp.*, vision and audio towers (MOD-5); rope factors of GGUF
// files, which the configuration holds already.
bool may_stay_unread(std::string_view canonical) noexcept;

}  // namespace kvasir::formats
