// The CUDA backend: kernels for NVIDIA GPUs behind the op table. A row's bits never depend on other
// rows, chunks, graphs or block sizes (docs/numerics.md). One thread calls a device. Errors:
// unsupported (built without CUDA, no GPU, one that is too old), capacity (its memory), device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "ops/device.h"

namespace kvasir::backend::cuda {

struct CudaOptions {
  std::vector<int> ordinals = {0};  // which GPUs; several work as one (tensor parallelism)
  bool use_graphs = true;  // small steps as captured graphs; the same bits without (EXE-48)
};

struct CudaMemory {
  std::uint64_t free_bytes = 0;
  std::uint64_t total_bytes = 0;
};

// Of the GPU's memory beside weights, KV and activations: the context, kernels, libraries'
// workspaces, staged values, captured graphs.
constexpr std::uint64_t kFixedBytes = 1ull << 30;

// Whether this build has kernels and this machine a GPU that they run on.
bool cuda_is_available() noexcept;

Result<CudaMemory> cuda_memory(int ordinal = 0);

Result<std::unique_ptr<ops::Device>> make_cuda_device(CudaOptions options);

// Bytes that such a device's pack() takes for a weight, from its shape and type.
Result<std::size_t> packed_size_bytes(const codec::WeightMatrix& weight, ops::PackOptions options);

}  // namespace kvasir::backend::cuda
