// Log-probabilities of a row of logits without any processing (SAMP-32): prompt logprobs,
// perplexity, echo. Pure functions, any thread. The sampling session reports its own (after
// processors, SAMP-30) through the same arithmetic.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "contract/sampling.h"

namespace kvasir::sampling {

// Logits [vocab] → log-softmax of `token` and of the n_top likeliest (descending, ties → lowest id;
// n_top is lowered to the vocabulary). Errors: what = "numeric_error" when a logit is NaN or
// infinite; invalid_argument for a token outside.
Result<Logprobs> logprobs_of(std::span<const float> logits, TokenId token, std::uint32_t n_top);

}  // namespace kvasir::sampling
