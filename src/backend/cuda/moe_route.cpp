// Routing of a mixture of experts, on the device: its results are read by moe_experts there.
#include "backend/cuda/device/moe_route.h"

#include "backend/cuda/detail/cuda_ops.h"

namespace kvasir::backend::cuda {

static_assert(static_cast<int>(Router::softmax_chosen) ==
              static_cast<int>(ops::RouterScore::softmax_chosen));

void moe_route(ops::Device& device, const ops::MoeRouteArgs& a) noexcept {
  launch_route(cuda_of(device).queue(), {.logits = mat_of(a.logits),
                                         .selection_bias = a.selection_bias,
                                         .expert_scales = a.expert_scales,
                                         .experts = a.experts.data(),
                                         .weights = a.weights.data(),
                                         .score = static_cast<Router>(a.score),
                                         .top_k = a.top_k,
                                         .n_groups = a.n_groups,
                                         .topk_groups = a.topk_groups,
                                         .renormalize = a.renormalize ? 1u : 0u,
                                         .scale = a.scale});
}

}  // namespace kvasir::backend::cuda
