// Mixture of experts. moe_route picks top_k experts a token from router logits; moe_experts runs
// them, grouped by expert. A token's result is the f32 sum of its experts' outputs in ascending
// expert id (MOD-1), so grouping never changes it.
#pragma once

#include <cstdint>
#include <span>

#include "ops/device.h"
#include "ops/elementwise.h"
#include "tensor/mat_view.h"

namespace kvasir::ops {

enum class RouterScore : std::uint8_t {
  softmax,        // over all experts, then top-k
  sigmoid,        // DeepSeek: scores + bias select, unbiased scores weigh
  softmax_chosen  // top-k of the logits, then softmax over the chosen ones
};

struct MoeRouteArgs {
  ConstMatView logits;  // [n_tokens, n_experts]
  RouterScore score = RouterScore::softmax;
  const float* selection_bias = nullptr;  // [n_experts]: added for selection only, or null
  std::uint32_t top_k = 1;
  std::uint32_t n_groups =
      1;  // selection is limited to the topk_groups best groups (sum of each one's top 2)
  std::uint32_t topk_groups = 1;
  bool renormalize = false;              // weights divided by their sum (+ 1e-20 for sigmoid)
  float scale = 1.0f;                    // routed_scaling_factor
  const float* expert_scales = nullptr;  // [n_experts]: on the weights, after `scale`; or null
  std::span<std::uint32_t>
      experts;  // out [n_tokens · top_k], ascending id within a token; ties → lower id
  std::span<float> weights;  // out, same shape
};

struct ExpertWeights {
  const PackedMatrix* gate = nullptr;  // [ff, hidden]
  const PackedMatrix* up = nullptr;
  const PackedMatrix* down = nullptr;  // [hidden, ff]
  const float* gate_bias = nullptr;    // [ff] or null, as the two below
  const float* up_bias = nullptr;
  const float* down_bias = nullptr;  // [hidden]
};

struct MoeExpertsArgs {
  ConstMatView x;                          // [n_tokens, hidden]
  std::span<const std::uint32_t> experts;  // from moe_route
  std::span<const float> weights;
  std::uint32_t top_k = 1;
  std::span<const ExpertWeights> bank;  // [n_experts]
  Activation activation = Activation::silu;
  float limit = 0.0f;        // as ActMulArgs
  std::span<float> scratch;  // moe_scratch_floats(...)
  MatView out;               // [n_tokens, hidden], overwritten
};

constexpr std::size_t moe_scratch_floats(std::size_t n_tokens,
                                         std::size_t top_k,
                                         std::size_t hidden,
                                         std::size_t ff) {
  return n_tokens * hidden + n_tokens * top_k * hidden +
         2 * n_tokens * ff;  // gathered x, every output, gate and up
}

// The composition every backend without a fused version uses: gather, linear, act_mul, linear,
// weighted sum. Needs the routing in host memory.
void moe_experts_composed(Device& device, const MoeExpertsArgs& args) noexcept;

}  // namespace kvasir::ops
