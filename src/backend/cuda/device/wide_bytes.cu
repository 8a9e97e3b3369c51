#include "backend/cuda/device/wide_many.cuh"

namespace kvasir::backend::cuda {

void launch_wide_bytes(Queue& queue, const WideArgs& args) {
  launch_wide_code<Code::byte>(queue, args);
}

}  // namespace kvasir::backend::cuda
