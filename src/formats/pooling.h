// How an embedding model makes one vector of its hidden rows (MOD-61): what sentence-transformers
// folders say in 1_Pooling/config.json, GGUF files in their metadata. Any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "formats/model_files.h"

namespace kvasir::formats {

enum class Pooling : std::uint8_t { last, cls, mean };  // cls: the first token's row

// None where the model says nothing. Errors: a config.json that cannot be read; a kind of pooling
// that is none of the above, or several at once.
Result<std::optional<Pooling>> find_pooling(const ModelFiles& files);

}  // namespace kvasir::formats
