// Routing: scores, the best groups, the best experts in them. The oracle in f64, the mirror in
// backend/cpu's f32.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "backend/ref/detail/mirror_math.h"
#include "backend/ref/detail/ref_ops.h"
#include "base/thread_pool.h"

namespace kvasir::backend::ref {
namespace {

double exponential(double x) { return std::exp(x); }
float exponential(float x) { return mirror_exp(x); }

template <class Real>
std::vector<Real> scores_of(const ops::MoeRouteArgs& a, const float* logits) {
  std::vector<Real> s(logits, logits + a.logits.n_cols);
  if (a.score == ops::RouterScore::softmax_chosen) return s;
  if (a.score == ops::RouterScore::sigmoid) {
    for (Real& x : s) x = Real(1) / (Real(1) + exponential(-x));
    return s;
  }
  const Real largest = *std::max_element(s.begin(), s.end());
  Real sum = 0;
  for (Real& x : s) sum += x = exponential(x - largest);
  for (Real& x : s) x /= sum;
  return s;
}

// Indices of the n largest, a NaN least, ties to the lower index; ascending.
template <class Real>
std::vector<std::uint32_t> best(const std::vector<Real>& x, std::size_t n) {
  const auto key = [&](std::uint32_t i) {
    return std::isnan(x[i]) ? -std::numeric_limits<Real>::infinity() : x[i];
  };
  std::vector<std::uint32_t> order(x.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](auto i, auto j) { return key(i) > key(j); });
  order.resize(n);
  std::sort(order.begin(), order.end());
  return order;
}

// Scores outside the best groups become -inf. A group is worth the sum of its two best.
template <class Real>
void keep_best_groups(const ops::MoeRouteArgs& a, std::vector<Real>& choice) {
  const std::size_t size = choice.size() / a.n_groups;
  std::vector<Real> worth;
  for (std::size_t g = 0; g < a.n_groups; ++g) {
    std::vector<Real> group(choice.begin() + static_cast<std::ptrdiff_t>(g * size),
                            choice.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    std::sort(group.begin(), group.end(), std::greater<>());
    worth.push_back(size > 1 ? group[0] + group[1] : group[0]);
  }
  const auto kept = best(worth, a.topk_groups);
  for (std::size_t e = 0; e < choice.size(); ++e) {
    if (!std::binary_search(kept.begin(), kept.end(), e / size))
      choice[e] = -std::numeric_limits<Real>::infinity();
  }
}

// The chosen logits, in place, become their softmax.
template <class Real>
void softmax_chosen(std::vector<Real>& scores, const std::vector<std::uint32_t>& chosen) {
  Real largest = -std::numeric_limits<Real>::infinity(), sum = 0;
  for (const auto e : chosen) largest = std::max(largest, scores[e]);
  for (const auto e : chosen) sum += scores[e] = exponential(scores[e] - largest);
  for (const auto e : chosen) scores[e] /= sum;
}

template <class Real>
void route_row(const ops::MoeRouteArgs& a, std::size_t t) {
  std::vector<Real> scores = scores_of<Real>(a, a.logits.row(t));
  std::vector<Real> choice = scores;
  for (std::size_t e = 0; a.selection_bias && e < choice.size(); ++e)
    choice[e] += Real(a.selection_bias[e]);
  if (a.topk_groups < a.n_groups) keep_best_groups(a, choice);
  const auto chosen = best(choice, a.top_k);
  if (a.score == ops::RouterScore::softmax_chosen) softmax_chosen(scores, chosen);
  Real sum = 0;
  for (const auto e : chosen) sum += scores[e];
  if (a.score == ops::RouterScore::sigmoid) sum += Real(1e-20);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const Real weight = a.renormalize ? scores[chosen[i]] / sum : scores[chosen[i]];
    a.experts[t * a.top_k + i] = chosen[i];
    const Real expert_scale = a.expert_scales ? Real(a.expert_scales[chosen[i]]) : Real(1);
    a.weights[t * a.top_k + i] = static_cast<float>(weight * Real(a.scale) * expert_scale);
  }
}

}  // namespace

void moe_route(ops::Device& device, const ops::MoeRouteArgs& a) noexcept {
  const FloatModeScope mode;
  for (std::size_t t = 0; t < a.logits.n_rows; ++t) {
    mode_of(device) == RefMode::mirror ? route_row<float>(a, t) : route_row<double>(a, t);
  }
}

}  // namespace kvasir::backend::ref
