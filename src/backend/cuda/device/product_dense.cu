#include "backend/cuda/device/product_kernel.cuh"

namespace kvasir::backend::cuda {

void launch_dense(Queue& queue, const ProductArgs& args) {
  launch_format<Code::bf16, ScaleKind::f32, false>(queue, args);
}

}  // namespace kvasir::backend::cuda
