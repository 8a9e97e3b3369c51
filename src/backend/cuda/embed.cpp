#include "backend/cuda/detail/cuda_matrix.h"
#include "backend/cuda/detail/cuda_ops.h"
#include "backend/cuda/device/rows.h"

namespace kvasir::backend::cuda {

void embed(ops::Device& device, const ops::EmbedArgs& a) noexcept {
  if (a.tokens.empty()) return;
  CudaDevice& cuda = cuda_of(device);
  launch_embed(cuda.queue(), {.table = matrix_of(a.table).weight,
                              .tokens = cuda.stage(a.tokens),
                              .picked = a.picked,
                              .out = mat_of(a.out),
                              .scale = a.scale,
                              .pad = 0});
}

}  // namespace kvasir::backend::cuda
