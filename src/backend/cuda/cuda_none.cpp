// Of builds without CUDA.
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/limits.h"

namespace kvasir::backend::cuda {
namespace {

Error not_built() { return unsupported("this build has no CUDA backend (it needs nvcc)"); }

}  // namespace

bool cuda_is_available() noexcept { return false; }
Result<CudaMemory> cuda_memory(int) { return not_built(); }
Result<std::unique_ptr<ops::Device>> make_cuda_device(CudaOptions) { return not_built(); }
Result<Limits> measure_limits() { return not_built(); }
LibraryWays library_ways() noexcept { return {}; }
Result<std::size_t> packed_size_bytes(const codec::WeightMatrix&, ops::PackOptions) {
  return not_built();
}

}  // namespace kvasir::backend::cuda
