// Which experts a token goes to, and with what weights.
#pragma once

#include "backend/cuda/device/launch.h"
#include "backend/cuda/device/views.h"

namespace kvasir::backend::cuda {

enum class Router : std::uint32_t { softmax, sigmoid, softmax_chosen };

struct RouteParams {
  ConstMat logits;
  const float *selection_bias, *expert_scales;
  std::uint32_t* experts;
  float* weights;
  Router score;
  std::uint32_t top_k, n_groups, topk_groups;
  std::uint32_t renormalize;
  float scale;
};

void launch_route(Queue& queue, const RouteParams& params);

}  // namespace kvasir::backend::cuda
