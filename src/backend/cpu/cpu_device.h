// The CPU backend: SIMD kernels over repacked weights, chosen at run time by what the CPU has.
// Every instruction set gives the same bits, and a row's bits never depend on other rows, threads
// or block sizes (docs/numerics.md). One thread calls a device; it forks inside ops. Errors:
// invalid_argument (threads), unsupported (isa the CPU lacks).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "backend/cpu/isa.h"
#include "base/result.h"
#include "ops/device.h"

namespace kvasir::backend::cpu {

// What products of quantized weights take: bf16 rows, or 8-bit ones with a scale a group, faster
// and coarser (docs/numerics.md).
enum class Activations : std::uint8_t { exact, int8 };

Result<Activations> parse_activations(std::string_view name);  // invalid_argument: no such name

struct CpuOptions {
  int n_threads = 1;
  Isa isa = Isa::automatic;
  Activations activations = Activations::exact;
};

Result<std::unique_ptr<ops::Device>> make_cpu_device(CpuOptions options);

// Bytes that such a device's pack() takes for a weight, from its shape and type: the stored data is
// not read. Scales that happen to fit in 16 bits where the type's need not may make it take less.
Result<std::size_t> packed_size_bytes(const codec::WeightMatrix& weight, ops::PackOptions options);

}  // namespace kvasir::backend::cpu
