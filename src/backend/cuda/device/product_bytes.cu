#include "backend/cuda/device/product_kernel.cuh"

namespace kvasir::backend::cuda {

void launch_bytes(Queue& queue, const ProductArgs& args) { launch_code<Code::byte>(queue, args); }

}  // namespace kvasir::backend::cuda
