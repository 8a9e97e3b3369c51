// What this GPU can do, measured in about a second: the bounds that speeds are stated against.
// Blocks the caller. Errors: unsupported (no GPU), capacity.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace kvasir::backend::cuda {

struct Limits {
  double copy_gb_s = 0;  // a copy inside its memory, bytes read and written; median
  double matmul_gflop_s =
      0;  // bf16 with f32 sums, 8,192 cubed on random numbers; median; 0: no cuBLASLt
};

Result<Limits> measure_limits();

// Ways in which cuBLASLt would multiply many rows that this process has tried: those that gave the
// own kernel's bits, and those that did not, where the own kernel serves, at half the speed.
struct LibraryWays {
  std::uint32_t n_used = 0, n_refused = 0;
};
LibraryWays library_ways() noexcept;

}  // namespace kvasir::backend::cuda
