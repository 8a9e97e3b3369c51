#include "sampling/detail/filters.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

namespace kvasir::sampling::detail {
namespace {

using Ranked = FilterScratch::Ranked;

constexpr float kLowest = std::numeric_limits<float>::lowest();  // below every token that is left

// Part of the order in which the border between kept and dropped lies: scores in [from, to), below
// tokens of mass `above`.
struct Bracket {
  float from = kLowest;
  float to = std::numeric_limits<float>::infinity();
  double above = 0.0;
  double mass = 0.0;  // of its own tokens
};

// A token is kept if total − (mass above it) > limit. So the border is below a bound b while total
// − mass(≥ b) > limit: the first of the descending bounds where that fails, and the one before it,
// are the new bracket. bounds ascend; the lowest one is not above the border.
Bracket narrow(const Bracket& old,
               std::span<const float, kBounds> bounds,
               std::span<const double, kBounds> masses,
               double total,
               double limit) {
  Bracket out = old;
  for (std::size_t b = kBounds; b-- > 0;) {
    out.from = bounds[b];
    out.mass = masses[b] - out.above;
    if (total - masses[b] <= limit) return out;
    out.to = bounds[b];
    out.above = masses[b];
  }
  return out;
}

// The place of the last kept token among the bracket's: a selection that halves the candidates by
// rank and goes on in the half where the border lies. 0 if none of them is kept.
std::uint64_t find_border(std::span<Ranked> items, double above, double total, double limit) {
  const auto better = [](const Ranked& a, const Ranked& b) { return a.rank > b.rank; };
  std::uint64_t border = 0;
  while (!items.empty()) {
    const std::size_t mid = items.size() / 2;
    std::nth_element(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(mid), items.end(),
                     better);
    double upper = above;
    for (const Ranked& r : items.first(mid)) upper += r.mass;
    if (total - upper > limit) {
      border = items[mid].rank;
      above = upper + items[mid].mass;
      items = items.subspan(mid + 1);
    } else {
      items = items.first(mid);
    }
  }
  return border;
}

}  // namespace

Normalizer normalizer_of(std::span<const float> x, float max) noexcept {
  return {max, static_cast<float>(std::log(sum_exp(x, max)))};
}

// Floats in order as unsigned numbers: negative ones have all bits turned, the others the sign bit.
// −0 counts as 0.
std::uint64_t rank_of(float score, TokenId token) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0f);
  const std::uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return std::uint64_t{ordered} << 32 | (0xFFFFFFFFu - token);
}

Cutoff cutoff_of(std::uint64_t rank) noexcept {
  const auto ordered = static_cast<std::uint32_t>(rank >> 32);
  const std::uint32_t bits = ordered & 0x80000000u ? ordered & 0x7FFFFFFFu : ~ordered;
  return {std::bit_cast<float>(bits), 0xFFFFFFFFu - static_cast<std::uint32_t>(rank)};
}

// The k-th best of the group maxima bounds the k-th best token from below; few tokens reach it.
std::span<const std::uint64_t> best_ranks(std::span<const float> x,
                                          std::size_t k,
                                          FilterScratch& scratch) {
  const std::size_t n_chunks = (x.size() + kChunk - 1) / kChunk;
  scratch.groups.resize(n_chunks * 16);
  group_maxima(x, scratch.groups);
  float bound = kLowest;
  if (k <= scratch.groups.size()) {
    scratch.p.assign(scratch.groups.begin(), scratch.groups.end());
    const auto kth = scratch.p.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(scratch.p.begin(), kth, scratch.p.end(), std::greater<>());
    bound = std::max(bound, *kth);
  }

  scratch.ranks.clear();
  for (std::size_t c = 0; c < n_chunks; ++c) {
    const auto group = std::span(scratch.groups).subspan(c * 16, 16);
    if (std::none_of(group.begin(), group.end(), [&](float m) { return m >= bound; })) continue;
    const std::size_t end = std::min(x.size(), (c + 1) * kChunk);
    for (std::size_t i = c * kChunk; i < end; ++i) {
      if (x[i] >= bound) scratch.ranks.push_back(rank_of(x[i], static_cast<TokenId>(i)));
    }
  }
  if (k < scratch.ranks.size()) {
    const auto kth = scratch.ranks.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(scratch.ranks.begin(), kth, scratch.ranks.end(), std::greater<>());
    scratch.ranks.resize(k);
  }
  return scratch.ranks;
}

// Passes over the row, of eight bounds each, narrow the bracket; only its tokens are selected from.
// The first bounds reach 64 below the top: what is further down weighs less than V·e⁻⁶⁴ together,
// below any 1 − top_p an f32 can say.
Cutoff top_p_cutoff(std::span<const float> x,
                    const Normalizer& norm,
                    float top_p,
                    FilterScratch& scratch) {
  constexpr int kRefinements = 2;
  constexpr double kFewTokens = 2000;  // selecting from so many costs less than another pass
  scratch.p.resize(x.size());
  probabilities(x, norm.max, norm.log_sum, scratch.p);
  const Peak peak = find_peak(x);
  const double limit = 1.0 - static_cast<double>(top_p);
  std::array<float, kBounds> bounds{kLowest, -64, -24, -16, -12, -8, -5, -2.5f};
  for (std::size_t b = 1; b < kBounds; ++b) bounds[b] += peak.max;
  auto masses = masses_from(scratch.p, x, bounds);
  const double total = masses[0];
  Bracket bracket = narrow({}, bounds, masses, total, limit);
  const auto at_most = [&] {  // tokens in the bracket: none is less likely than its lower end
    return bracket.mass / std::exp(static_cast<double>(bracket.from - norm.max - norm.log_sum));
  };
  for (int i = 0; i < kRefinements && at_most() > kFewTokens; ++i) {
    const float low = bracket.from, width = std::min(bracket.to, peak.max) - low;
    for (std::size_t b = 0; b < kBounds; ++b)
      bounds[b] = low + width * (static_cast<float>(b) / kBounds);
    masses = masses_from(scratch.p, x, bounds);
    bracket = narrow(bracket, bounds, masses, total, limit);
  }

  scratch.choices.resize(x.size());
  const std::size_t n = list_between(x, bracket.from, bracket.to, scratch.choices);
  scratch.ranked.clear();
  for (TokenId t : std::span(scratch.choices).first(n)) {
    scratch.ranked.push_back({rank_of(x[t], t), round_mass(scratch.p[t])});
  }
  const std::uint64_t border = find_border(scratch.ranked, bracket.above, total, limit);
  return cutoff_of(border != 0 ? border : rank_of(peak.max, peak.token));  // the top survives
}

void keep_top_p(std::span<float> x, const Normalizer& norm, float top_p, FilterScratch& scratch) {
  exclude_below(x, top_p_cutoff(x, norm, top_p, scratch));
}

void keep_min_p(std::span<float> x,
                const Normalizer& norm,
                float min_p,
                std::uint32_t min_tokens_to_keep,
                FilterScratch& scratch) {
  const float best = (find_peak(x).max - norm.max) - norm.log_sum;
  const float limit = best + std::log(min_p);
  if (min_tokens_to_keep > 1) {
    const auto ranks = best_ranks(x, min_tokens_to_keep, scratch);
    const Cutoff worst_kept = cutoff_of(*std::min_element(ranks.begin(), ranks.end()));
    if ((worst_kept.score - norm.max) - norm.log_sum < limit) return exclude_below(x, worst_kept);
  }
  exclude_unlikely(x, norm.max, norm.log_sum, limit);
}

void drop_top_choices(std::span<float> x,
                      float threshold,
                      std::span<const TokenId> spared,
                      FilterScratch& scratch) {
  const float top = find_peak(x).max;
  const auto sum = static_cast<float>(sum_exp(x, top));
  std::vector<float>& p = scratch.p;
  p.resize(x.size());
  probabilities(x, top, 0.0f, p);
  const float surely_below =
      threshold * sum * 0.999f;  // no division for the many that are far from the threshold
  std::vector<TokenId>& choices = scratch.choices;
  choices.clear();
  float least = std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (p[i] <= surely_below) continue;
    p[i] /= sum;
    if (!(p[i] > threshold)) continue;
    least = std::min(least, p[i]);
    choices.push_back(static_cast<TokenId>(i));
  }
  for (TokenId t : choices) {
    if (p[t] > least && std::find(spared.begin(), spared.end(), t) == spared.end())
      x[t] = kExcluded;
  }
}

void keep_top_k(std::span<float> x, std::size_t k, FilterScratch& scratch) {
  const auto ranks = best_ranks(x, k, scratch);
  exclude_below(x, cutoff_of(*std::min_element(ranks.begin(), ranks.end())));
}

}  // namespace kvasir::sampling::detail
