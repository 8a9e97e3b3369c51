// The set of ids that end a generation (TXT-12): the union of what a model's files say. Called when
// a model is opened. Pure functions over JSON values; no thread rule.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "json/json.h"

namespace kvasir::text {

struct EosSources {
  const json::Value* config = nullptr;             // config.json: eos_token_id, also in text_config
  const json::Value* generation_config = nullptr;  // generation_config.json: eos_token_id
  std::optional<TokenId> tokenizer_eos = {};
  std::span<const TokenId> family_ids =
      {};  // what the model family or the GGUF file adds (eot, eom)
};

// Ascending, each once. A member may be a number, a list of numbers, null or absent. Error:
// invalid_argument for a member of another type, or a negative or too large id.
Result<std::vector<TokenId>> eos_ids(const EosSources& sources);

}  // namespace kvasir::text
