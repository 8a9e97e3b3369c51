// The CPU backend: SIMD kernels over repacked weights, chosen at run time by what the CPU has.
// Every instruction set gives the same bits, and a row's bits never depend on other rows, threads
// or block sizes (docs/numerics.md). One thread calls a device; it forks inside ops. Errors:
// invalid_argument (threads), unsupported (isa the CPU lacks).
#pragma once

#include <cstddef>
#include <memory>

#include "backend/cpu/isa.h"
#include "base/result.h"
#include "ops/device.h"

namespace kvasir::backend::cpu {

struct CpuOptions {
  int n_threads = 1;
  Isa isa = Isa::automatic;
};

Result<std::unique_ptr<ops::Device>> make_cpu_device(CpuOptions options);

// Bytes that such a device's pack() takes for a weight, from its shape and type: the stored data is
// not read. Scales that happen to fit in 16 bits where the type's need not may make it take less.
Result<std::size_t> packed_size_bytes(const codec::WeightMatrix& weight, ops::PackOptions options);

}  // namespace kvasir::backend::cpu
