// A warp a token, its scores in shared memory. Sums go lane by lane (expert e in lane e mod 32,
// ascending), then halves; a choice is the largest score, of equal ones the lower id, a NaN last.
#include "backend/cuda/device/math.cuh"
#include "backend/cuda/device/moe_route.h"

namespace kvasir::backend::cuda {
namespace {

__device__ float minus_infinity() { return __uint_as_float(0xff800000u); }
__device__ float key_of(float x) { return x != x ? minus_infinity() : x; }

struct Best {
  float key;
  std::uint32_t at;
};
__device__ Best better(Best a, Best b) {
  return b.key > a.key || (b.key == a.key && b.at < a.at) ? b : a;
}

// The best of [0, n) not taken yet, in every lane; the places are marked one by one by the caller.
__device__ Best best_of(const float* x, const std::uint8_t* taken, std::uint32_t n) {
  Best best{minus_infinity(), ~0u};
  for (std::uint32_t i = threadIdx.x; i < n; i += 32)
    if (!taken[i]) best = better(best, {key_of(x[i]), i});
  for (int half = 16; half > 0; half /= 2)
    best =
        better(best, {__shfl_xor_sync(~0u, best.key, half), __shfl_xor_sync(~0u, best.at, half)});
  return best;
}
__device__ void take_best(const float* x, std::uint8_t* taken, std::uint32_t n, std::uint32_t k) {
  for (std::uint32_t i = threadIdx.x; i < n; i += 32) taken[i] = 0;
  __syncwarp();
  for (std::uint32_t i = 0; i < k; ++i) {
    const Best best = best_of(x, taken, n);
    if (threadIdx.x == 0) taken[best.at] = 1;
    __syncwarp();
  }
}

// Logits to scores, in place.
__device__ void find_scores(const RouteParams& p, float* scores, std::uint32_t n) {
  if (p.score == Router::softmax_chosen) return;
  if (p.score == Router::sigmoid) {
    for (std::uint32_t i = threadIdx.x; i < n; i += 32) scores[i] = sigmoid_of(scores[i]);
    return __syncwarp();
  }
  float max = minus_infinity(), sum = 0.0f;
  for (std::uint32_t i = threadIdx.x; i < n; i += 32) max = fmaxf(max, scores[i]);
  max = max_of_warp(max);
  for (std::uint32_t i = threadIdx.x; i < n; i += 32) sum += scores[i] = expf(scores[i] - max);
  sum = sum_of_warp(sum);
  for (std::uint32_t i = threadIdx.x; i < n; i += 32) scores[i] /= sum;
  __syncwarp();
}

// Choices outside the best groups become minus infinity. A group is worth the sum of its two best.
__device__ void keep_best_groups(
    const RouteParams& p, float* choice, float* worth, std::uint8_t* taken, std::uint32_t n) {
  const std::uint32_t size = n / p.n_groups;
  for (std::uint32_t g = threadIdx.x; g < p.n_groups; g += 32) {
    float first = minus_infinity(), second = minus_infinity();
    for (std::uint32_t i = g * size; i < (g + 1) * size; ++i) {
      const float x = key_of(choice[i]);
      second = fmaxf(second, fminf(first, x));
      first = fmaxf(first, x);
    }
    worth[g] = size > 1 ? first + second : first;
  }
  __syncwarp();
  take_best(worth, taken, p.n_groups, p.topk_groups);
  for (std::uint32_t i = threadIdx.x; i < n; i += 32)
    if (!taken[i / size]) choice[i] = minus_infinity();
  __syncwarp();
}

// The chosen, ascending, and their weights, by lane 0: they are few.
__device__ void write_chosen(const RouteParams& p,
                             std::size_t token,
                             const float* scores,
                             const std::uint8_t* taken,
                             std::uint32_t n) {
  std::uint32_t* const experts = p.experts + token * p.top_k;
  float* const weights = p.weights + token * p.top_k;
  std::uint32_t count = 0;
  float max = minus_infinity(), sum = 0.0f;
  for (std::uint32_t e = 0; e < n && count < p.top_k; ++e) {
    if (!taken[e]) continue;
    experts[count] = e;
    weights[count++] = scores[e];
    max = fmaxf(max, scores[e]);
  }
  if (p.score == Router::softmax_chosen) {
    for (std::uint32_t i = 0; i < count; ++i) sum += weights[i] = expf(weights[i] - max);
    for (std::uint32_t i = 0; i < count; ++i) weights[i] /= sum;
    sum = 0.0f;
  }
  for (std::uint32_t i = 0; i < count; ++i) sum += weights[i];
  if (p.score == Router::sigmoid) sum += 1e-20f;
  for (std::uint32_t i = 0; i < count; ++i) {
    const float weight = p.renormalize != 0 ? weights[i] / sum : weights[i];
    const float expert_scale = p.expert_scales ? p.expert_scales[experts[i]] : 1.0f;
    weights[i] = weight * p.scale * expert_scale;
  }
}

__global__ void route_kernel(RouteParams p) {
  extern __shared__ float shared[];
  const std::uint32_t n = p.logits.n_cols;
  float *const scores = shared, *const choice = shared + n, *const worth = shared + 2 * n;
  auto* const taken = reinterpret_cast<std::uint8_t*>(shared + 3 * n);
  const float* const logits = p.logits.row(blockIdx.x);
  for (std::uint32_t i = threadIdx.x; i < n; i += 32) scores[i] = logits[i];
  __syncwarp();
  find_scores(p, scores, n);
  for (std::uint32_t i = threadIdx.x; i < n; i += 32)
    choice[i] = p.selection_bias ? scores[i] + p.selection_bias[i] : scores[i];
  __syncwarp();
  if (p.topk_groups < p.n_groups) keep_best_groups(p, choice, worth, taken, n);
  take_best(choice, taken, n, p.top_k);
  if (threadIdx.x == 0) write_chosen(p, blockIdx.x, scores, taken, n);
}

}  // namespace

void launch_route(Queue& queue, const RouteParams& p) {
  if (p.logits.n_rows == 0) return;
  queue.launch(route_kernel, dim3(p.logits.n_rows), 32, p.logits.n_cols * (3 * sizeof(float) + 1),
               p);
}

}  // namespace kvasir::backend::cuda
