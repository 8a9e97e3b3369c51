// config.json as Hugging Face would have it, made from a GGUF file's metadata and tensors (MOD-52).
#pragma once

#include "formats/detail/gguf_arch.h"
#include "formats/gguf.h"
#include "formats/model_files.h"
#include "json/json.h"

namespace kvasir::formats {

// Layers of the text model proper: block_count without the prediction heads after them.
std::uint64_t gguf_layer_count(const GgufContent& content);

// `tensors` may hold more than content's own (a split file). Refused: no architecture, counts of
// heads that differ from layer to layer, value heads of another size than key heads.
Result<json::Value> gguf_config(const GgufContent& content,
                                const GgufArch& arch,
                                const std::vector<GgufTensor>& tensors);

}  // namespace kvasir::formats
