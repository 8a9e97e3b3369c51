// Routing: scores, the best groups, the best experts in them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "backend/ref/detail/ref_ops.h"

namespace kvasir::backend::ref {
namespace {

std::vector<double> scores_of(const ops::MoeRouteArgs& a, const float* logits) {
  std::vector<double> s(logits, logits + a.logits.n_cols);
  if (a.score == ops::RouterScore::sigmoid) {
    for (double& x : s) x = 1.0 / (1.0 + std::exp(-x));
    return s;
  }
  const double largest = *std::max_element(s.begin(), s.end());
  double sum = 0.0;
  for (double& x : s) sum += x = std::exp(x - largest);
  for (double& x : s) x /= sum;
  return s;
}

// Indices of the n largest, a NaN least, ties to the lower index; ascending.
std::vector<std::uint32_t> best(const std::vector<double>& x, std::size_t n) {
  const auto key = [&](std::uint32_t i) { return std::isnan(x[i]) ? -std::numeric_limits<double>::infinity() : x[i]; };
  std::vector<std::uint32_t> order(x.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](auto i, auto j) { return key(i) > key(j); });
  order.resize(n);
  std::sort(order.begin(), order.end());
  return order;
}

// Scores outside the best groups become -inf. A group is worth the sum of its two best.
void keep_best_groups(const ops::MoeRouteArgs& a, std::vector<double>& choice) {
  const std::size_t size = choice.size() / a.n_groups;
  std::vector<double> worth;
  for (std::size_t g = 0; g < a.n_groups; ++g) {
    std::vector<double> group(choice.begin() + static_cast<std::ptrdiff_t>(g * size),
                              choice.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    std::sort(group.begin(), group.end(), std::greater<>());
    worth.push_back(size > 1 ? group[0] + group[1] : group[0]);
  }
  const auto kept = best(worth, a.topk_groups);
  for (std::size_t e = 0; e < choice.size(); ++e) {
    if (!std::binary_search(kept.begin(), kept.end(), e / size)) choice[e] = -std::numeric_limits<double>::infinity();
  }
}

}  // namespace

void moe_route(ops::Device&, const ops::MoeRouteArgs& a) noexcept {
  for (std::size_t t = 0; t < a.logits.n_rows; ++t) {
    const std::vector<double> scores = scores_of(a, a.logits.row(t));
    std::vector<double> choice = scores;
    if (a.selection_bias) {
      for (std::size_t e = 0; e < choice.size(); ++e) choice[e] += static_cast<double>(a.selection_bias[e]);
    }
    if (a.topk_groups < a.n_groups) keep_best_groups(a, choice);
    const auto chosen = best(choice, a.top_k);
    double sum = a.score == ops::RouterScore::sigmoid ? 1e-20 : 0.0;
    for (const auto e : chosen) sum += scores[e];
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const double weight = a.renormalize ? scores[chosen[i]] / sum : scores[chosen[i]];
      a.experts[t * a.top_k + i] = chosen[i];
      a.weights[t * a.top_k + i] = static_cast<float>(weight * static_cast<double>(a.scale));
    }
  }
}

}  // namespace kvasir::backend::ref
