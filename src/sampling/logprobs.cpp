#include "sampling/logprobs.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "sampling/detail/filters.h"
#include "sampling/detail/kernels.h"
#include "sampling/detail/logprob_pick.h"
#include "sampling/sampling_session.h"

namespace kvasir::sampling {

Logprobs detail::pick_logprobs(std::span<const float> lp,
                               TokenId token,
                               std::uint32_t n_top,
                               FilterScratch& scratch) {
  Logprobs out;
  out.logprob = lp[token];
  if (n_top == 0) return out;
  const auto best = best_ranks(lp, n_top, scratch);
  std::vector<std::uint64_t> ranks(best.begin(), best.end());
  std::sort(ranks.begin(), ranks.end(), std::greater<>());
  out.top.reserve(ranks.size());
  for (std::uint64_t rank : ranks) {
    const TokenId id = cutoff_of(rank).last;
    out.top.push_back({id, lp[id]});
  }
  return out;
}

Result<Logprobs> logprobs_of(std::span<const float> logits, TokenId token, std::uint32_t n_top) {
  if (token >= logits.size())
    return invalid("token " + std::to_string(token) + " is outside the vocabulary");
  const detail::Peak peak = detail::find_peak(logits);
  if (!peak.is_finite) return Error{Errc::device, std::string(kNumericError)};
  const detail::Normalizer norm = detail::normalizer_of(logits, peak.max);
  detail::FilterScratch scratch;
  std::vector<float> lp(logits.size());
  detail::log_softmax(logits, norm.max, norm.log_sum, lp);
  return detail::pick_logprobs(lp, token, n_top, scratch);
}

}  // namespace kvasir::sampling
