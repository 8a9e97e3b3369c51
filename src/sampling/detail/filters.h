// The truncating samplers (SAMP-8…11) over one row of scores, in place: what they drop becomes
// excluded (−∞). Where the spec orders tokens, the order is (score descending, lower id first).
// They see unscaled log-probabilities lp = (x − max) − log_sum and do not renormalise. Private to
// sampling/.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "sampling/detail/kernels.h"

namespace kvasir::sampling::detail {

// The log-softmax of a row, before anything was excluded: lp_i = (x_i − max) − log_sum.
struct Normalizer {
  float max = 0.0f;
  float log_sum = 0.0f;
};
Normalizer normalizer_of(std::span<const float> x, float max) noexcept;

// Buffers the filters reuse from token to token.
struct FilterScratch {
  struct Ranked {
    std::uint64_t rank = 0;  // higher is better: see rank_of
    double mass = 0.0;
  };
  std::vector<float> groups;
  std::vector<std::uint64_t> ranks;
  std::vector<float> p;
  std::vector<TokenId> choices;
  std::vector<Ranked> ranked;
};

// A place in the order as one number: higher score first, then lower id.
std::uint64_t rank_of(float score, TokenId token) noexcept;
Cutoff cutoff_of(std::uint64_t rank) noexcept;

// The ranks of the k best tokens (fewer if not as many are left), in no particular order.
std::span<const std::uint64_t> best_ranks(std::span<const float> x,
                                          std::size_t k,
                                          FilterScratch& scratch);

// Keeps tokens whose cumulative probability, ascending, exceeds 1 − top_p; the best one stays. Each
// probability is f32 exp(lp) rounded to a multiple of 2⁻⁵⁰; sums of those are exact, so the
// cumulative sum needs no sorted addition. 0 < top_p < 1.
void keep_top_p(std::span<float> x, const Normalizer& norm, float top_p, FilterScratch& scratch);

// The place of the last token it keeps.
Cutoff top_p_cutoff(std::span<const float> x,
                    const Normalizer& norm,
                    float top_p,
                    FilterScratch& scratch);

// Drops lp < max lp of what is left + ln(min_p), but keeps the best min_tokens_to_keep. min_p > 0.
void keep_min_p(std::span<float> x,
                const Normalizer& norm,
                float min_p,
                std::uint32_t min_tokens_to_keep,
                FilterScratch& scratch);

// XTC once its coin fell: with p the softmax of what is left and m the least p above the threshold,
// drops p > m except `spared` tokens.
void drop_top_choices(std::span<float> x,
                      float threshold,
                      std::span<const TokenId> spared,
                      FilterScratch& scratch);

// Keeps the k best. k > 0.
void keep_top_k(std::span<float> x, std::size_t k, FilterScratch& scratch);

}  // namespace kvasir::sampling::detail
