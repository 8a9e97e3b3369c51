#include "backend/cuda/device/product_kernel.cuh"

namespace kvasir::backend::cuda {

void launch_nibbles(Queue& queue, const ProductArgs& args) {
  launch_code<Code::nibble>(queue, args);
}

}  // namespace kvasir::backend::cuda
