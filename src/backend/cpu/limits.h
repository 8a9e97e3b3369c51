// What this machine can do, measured in about a second: the bounds that speeds are stated against.
// Blocks the caller; other work on the machine makes the figures too low.
#pragma once

#include <string>
#include <vector>

namespace kvasir::backend::cpu {

struct MatrixLimit {
  std::string name;      // "amx bf16"
  double gop_s_one = 0;  // 10^9 operations a second of one thread; a multiply-add is two
  double gop_s = 0;      // of all threads
};

struct Limits {
  int n_threads = 0;
  // Streaming reads of memory far larger than the caches, best of several passes.
  double read_gb_s_one = 0, read_gb_s = 0;
  // Independent f32 fused multiply-adds on the widest vectors that the CPU has.
  double fma_gflop_s_one = 0, fma_gflop_s = 0;
  std::vector<MatrixLimit> matrix;  // of the matrix instructions that the CPU has
  // Share of the time, 0 to 1, in which another hardware thread ran on the threads' cores: a
  // neighbour on the machine, or our own threads where they are two a core. Below 0: not known.
  double shared_time = -1;
};

Limits measure_limits(int n_threads);
// Of the calling thread, over some milliseconds: the share of the time, 0 to 1, in which another
// hardware thread ran on its core, which no process list of a virtual machine shows: four chains of
// additions then take clearly longer than one, which a core that is alone does in the same time.
// Below 0 where this is not measured (not x86-64).
double share_of_shared_time() noexcept;
// The fastest unit for products of bf16 numbers that add up in f32, as the products of this backend
// do: amx bf16, avx512-bf16 or f32 FMA.
MatrixLimit float_limit(const Limits& limits);
// Of bytes that add up in integers (--activations int8), else float_limit.
MatrixLimit byte_limit(const Limits& limits);

}  // namespace kvasir::backend::cpu
