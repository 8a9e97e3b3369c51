// What this machine can do, measured in about a second: the bounds that speeds are stated against.
// Blocks the caller; other work on the machine makes the figures too low.
#pragma once

namespace kvasir::backend::cpu {

struct Limits {
  double read_gb_s = 0;  // streaming reads of memory far larger than the caches, all threads, best
                         // of several passes
  double fma_gflop_s =
      0;  // independent f32 fused multiply-adds on the widest vectors that the CPU has
};

Limits measure_limits(int n_threads);

}  // namespace kvasir::backend::cpu
