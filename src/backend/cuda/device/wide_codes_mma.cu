#include "backend/cuda/device/wide_codes_mma.cuh"

namespace kvasir::backend::cuda {

bool launch_mma_nibbles(Queue& queue, const WideArgs& p) {
  return with_format<Code::nibble>(p.format, [&]<class F>() {
    // Most such weights have this group.
    constexpr unsigned kGroup = F::kHasBias && F::kScale != ScaleKind::f32 ? 64 : 32;
    return p.format.group == kGroup ? launch_mma_group<F, kGroup>(queue, p)
                                    : launch_mma_group<F, 0>(queue, p);
  });
}

}  // namespace kvasir::backend::cuda
