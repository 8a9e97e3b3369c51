#include "backend/cuda/device/wide_many.cuh"

namespace kvasir::backend::cuda {

void launch_wide_nibbles(Queue& queue, const WideArgs& args) {
  launch_wide_code<Code::nibble>(queue, args);
}

}  // namespace kvasir::backend::cuda
