// What this GPU can do, measured in about a second: the bounds that speeds are stated against.
// Blocks the caller. Errors: unsupported (no GPU), capacity.
#pragma once

#include "base/result.h"

namespace kvasir::backend::cuda {

struct Limits {
  double copy_gb_s = 0;  // a copy inside its memory, bytes read and written; median
  double matmul_gflop_s =
      0;  // bf16 with f32 sums, 8,192 cubed on random numbers; median; 0: no cuBLASLt
};

Result<Limits> measure_limits();

}  // namespace kvasir::backend::cuda
