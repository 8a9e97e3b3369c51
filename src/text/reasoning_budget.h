// --reasoning-budget (TXT-52): after so many reasoning tokens a row must write the closing marker.
// A TokenConstraint that the engine asks before it samples; nothing applies outside reasoning. Made
// by the library for each request; the engine's thread clones and advances it.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "contract/token_constraint.h"
#include "text/output_parser.h"
#include "text/tokenizer.h"

namespace kvasir::text {

struct ReasoningBudget {
  ReasoningFormat format = ReasoningFormat::none;
  bool starts_open = false;    // the prompt ends inside a reasoning block (TXT-51)
  std::uint32_t n_tokens = 0;  // of reasoning; the closing marker is not among them
  std::uint32_t vocab = 0;     // of the model, at least the tokenizer's
};

// Null: that format has no reasoning. Error: the tokenizer cannot spell a marker.
Result<std::shared_ptr<const TokenConstraint>> make_reasoning_constraint(
    const Tokenizer& tokenizer, const ReasoningBudget& budget);

}  // namespace kvasir::text
