// The logprob record of a token from a row's log-softmax; shared by the session and logprobs.h.
// Private to sampling/.
#pragma once

#include <span>

#include "contract/sampling.h"
#include "sampling/detail/filters.h"

namespace kvasir::sampling::detail {

// lp [vocab]: log-softmax → the token's value and the n_top best, descending, ties → lowest id.
Logprobs pick_logprobs(std::span<const float> lp,
                       TokenId token,
                       std::uint32_t n_top,
                       FilterScratch& scratch);

}  // namespace kvasir::sampling::detail
