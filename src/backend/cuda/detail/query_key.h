// What ops::query_key comes to where one kernel does it.
#pragma once

#include "backend/cuda/detail/cuda_ops.h"
#include "backend/cuda/device/elementwise.h"
#include "ops/fused.h"

namespace kvasir::backend::cuda {

// Norms of heads or none, exact rows, a grid's y for every token.
bool is_plain(const ops::QueryKeyArgs& args) noexcept;
QueryKeyParams query_key_params(CudaDevice& cuda, const ops::QueryKeyArgs& args) noexcept;

}  // namespace kvasir::backend::cuda
