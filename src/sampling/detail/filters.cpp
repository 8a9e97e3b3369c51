#include "sampling/detail/filters.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

namespace kvasir::sampling::detail {
namespace {

using Ranked = FilterScratch::Ranked;

// Fills scratch.ranked with the tokens that can be among the kept. Keeping is decided by total − (mass above) > limit, so
// once the tokens near the top hold enough mass the rest cannot pass; the spans tried cover peaked to flat rows.
void rank_candidates(std::span<const float> x, float top, double total, double limit, FilterScratch& scratch) {
  float from = std::numeric_limits<float>::lowest();
  for (float below_top : {4.0f, 8.0f, 12.0f}) {
    if (total - exact_mass(scratch.p, x, top - below_top) > limit) continue;
    from = top - below_top;
    break;
  }
  scratch.ranked.clear();
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] < from) continue;
    scratch.ranked.push_back({rank_of(x[i], static_cast<TokenId>(i)), round_mass(scratch.p[i])});
  }
}

// The rank of the last kept token: a selection that halves the candidates by rank and goes on in the half where the border
// lies. The best token is kept whatever its mass.
std::uint64_t top_p_border(std::span<Ranked> items, double total, double limit) {
  const auto better = [](const Ranked& a, const Ranked& b) { return a.rank > b.rank; };
  std::uint64_t border = std::min_element(items.begin(), items.end(), better)->rank;
  double above = 0.0;  // mass of all kept so far
  while (!items.empty()) {
    const std::size_t mid = items.size() / 2;
    std::nth_element(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(mid), items.end(), better);
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

// Floats in order as unsigned numbers: negative ones have all bits turned, the others the sign bit. −0 counts as 0.
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
std::span<const std::uint64_t> best_ranks(std::span<const float> x, std::size_t k, FilterScratch& scratch) {
  const std::size_t n_chunks = (x.size() + kChunk - 1) / kChunk;
  scratch.groups.resize(n_chunks * 16);
  group_maxima(x, scratch.groups);
  float bound = std::numeric_limits<float>::lowest();
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

void keep_top_p(std::span<float> x, const Normalizer& norm, float top_p, FilterScratch& scratch) {
  scratch.p.resize(x.size());
  probabilities(x, norm.max, norm.log_sum, scratch.p);
  const double limit = 1.0 - static_cast<double>(top_p);
  const double total = exact_mass(scratch.p, x, std::numeric_limits<float>::lowest());
  rank_candidates(x, find_peak(x).max, total, limit, scratch);
  exclude_below(x, cutoff_of(top_p_border(scratch.ranked, total, limit)));
}

void keep_min_p(std::span<float> x, const Normalizer& norm, float min_p, std::uint32_t min_tokens_to_keep,
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

void drop_top_choices(std::span<float> x, float threshold, std::span<const TokenId> spared, FilterScratch& scratch) {
  const float top = find_peak(x).max;
  const auto sum = static_cast<float>(sum_exp(x, top));
  std::vector<float>& p = scratch.p;
  p.resize(x.size());
  probabilities(x, top, 0.0f, p);
  float least = std::numeric_limits<float>::infinity();
  for (float& v : p) {
    v /= sum;
    least = v > threshold && v < least ? v : least;
  }

  const auto is_spared = [&](std::size_t i) {
    return std::find(spared.begin(), spared.end(), static_cast<TokenId>(i)) != spared.end();
  };
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (p[i] > least && !is_spared(i)) x[i] = kExcluded;
  }
}

void keep_top_k(std::span<float> x, std::size_t k, FilterScratch& scratch) {
  const auto ranks = best_ranks(x, k, scratch);
  exclude_below(x, cutoff_of(*std::min_element(ranks.begin(), ranks.end())));
}

}  // namespace kvasir::sampling::detail
