// Routing, one token after another on the caller: a few thousand scores a step. f32, sums in
// ascending expert id.
#include <algorithm>
#include <limits>
#include <vector>

#include "backend/cpu/detail/cpu_ops.h"

namespace kvasir::backend::cpu {
namespace {

constexpr float kExcluded = -std::numeric_limits<float>::infinity();

void score_row(const KernelTable& kernels,
               const ops::MoeRouteArgs& a,
               const float* logits,
               std::vector<float>& scores) {
  const std::size_t n = a.logits.n_cols;
  scores.assign(logits, logits + n);
  if (a.score == ops::RouterScore::softmax_chosen) return;
  if (a.score == ops::RouterScore::sigmoid) {
    std::transform(logits, logits + n, scores.begin(), [](float x) { return -x; });
    kernels.exp(scores.data(), n, scores.data());
    for (float& s : scores) s = 1.0f / (1.0f + s);
    return;
  }
  float largest = kExcluded, sum = 0.0f;
  for (std::size_t e = 0; e < n; ++e) largest = std::max(largest, logits[e]);
  std::transform(logits, logits + n, scores.begin(), [=](float x) { return x - largest; });
  kernels.exp(scores.data(), n, scores.data());
  for (const float s : scores) sum += s;
  for (float& s : scores) s /= sum;
}

// Marks the n best of `choice`: the larger, then the lower index; what is not a number counts as
// least.
void choose(const std::vector<float>& choice, std::size_t n, std::vector<bool>& chosen) {
  chosen.assign(choice.size(), false);
  for (std::size_t round = 0; round < n; ++round) {
    std::size_t best = choice.size();
    float best_value = kExcluded;
    for (std::size_t e = 0; e < choice.size(); ++e) {
      const float value = choice[e] == choice[e] ? choice[e] : kExcluded;
      if (chosen[e] || (best != choice.size() && !(value > best_value))) continue;
      best = e;
      best_value = value;
    }
    if (best == choice.size()) return;
    chosen[best] = true;
  }
}

// The chosen logits, in place, become their softmax.
void softmax_chosen(const KernelTable& kernels,
                    const std::vector<bool>& chosen,
                    std::vector<float>& scores) {
  float largest = kExcluded, sum = 0.0f;
  for (std::size_t e = 0; e < scores.size(); ++e) {
    if (chosen[e]) largest = std::max(largest, scores[e]);
  }
  for (float& s : scores) s -= largest;
  kernels.exp(scores.data(), scores.size(), scores.data());
  for (std::size_t e = 0; e < scores.size(); ++e) {
    if (chosen[e]) sum += scores[e];
  }
  for (float& s : scores) s /= sum;
}

// Only experts of the topk_groups groups with the largest sums of their two best stay eligible.
void limit_groups(const ops::MoeRouteArgs& a,
                  std::vector<float>& choice,
                  std::vector<bool>& chosen) {
  const std::size_t size = choice.size() / a.n_groups;
  std::vector<float> worth(a.n_groups);
  for (std::size_t g = 0; g < a.n_groups; ++g) {
    float first = kExcluded, second = kExcluded;
    for (std::size_t e = g * size; e < (g + 1) * size; ++e) {
      second = std::max(second, std::min(first, choice[e]));
      first = std::max(first, choice[e]);
    }
    worth[g] = size > 1 ? first + second : first;
  }
  choose(worth, a.topk_groups, chosen);
  for (std::size_t e = 0; e < choice.size(); ++e) {
    if (!chosen[e / size]) choice[e] = kExcluded;
  }
}

void write_choice(const ops::MoeRouteArgs& a,
                  std::size_t token,
                  const std::vector<float>& scores,
                  const std::vector<bool>& chosen) {
  float sum = 0.0f;
  std::size_t slot = token * a.top_k;
  for (std::size_t e = 0; e < scores.size(); ++e) {
    if (!chosen[e]) continue;
    a.experts[slot] = static_cast<std::uint32_t>(e);
    a.weights[slot++] = scores[e];
    sum += scores[e];
  }
  if (a.score == ops::RouterScore::sigmoid) sum += 1e-20f;
  for (std::size_t i = token * a.top_k; i < slot; ++i) {
    if (a.renormalize) a.weights[i] /= sum;
    a.weights[i] *= a.scale;
    if (a.expert_scales) a.weights[i] *= a.expert_scales[a.experts[i]];
  }
}

}  // namespace

void moe_route(ops::Device& device, const ops::MoeRouteArgs& a) noexcept {
  const FloatModeScope mode;
  const KernelTable& kernels = cpu_of(device).kernels();
  std::vector<float> scores, choice;
  std::vector<bool> chosen;
  for (std::size_t t = 0; t < a.logits.n_rows; ++t) {
    score_row(kernels, a, a.logits.row(t), scores);
    choice = scores;
    for (std::size_t e = 0; a.selection_bias && e < choice.size(); ++e)
      choice[e] += a.selection_bias[e];
    if (a.topk_groups < a.n_groups) limit_groups(a, choice, chosen);
    choose(choice, a.top_k, chosen);
    if (a.score == ops::RouterScore::softmax_chosen) softmax_chosen(kernels, chosen, scores);
    write_choice(a, t, scores, chosen);
  }
}

}  // namespace kvasir::backend::cpu
