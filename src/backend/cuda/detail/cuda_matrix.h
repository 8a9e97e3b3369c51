// A weight in the CUDA backend's layouts (device/weights.h).
#pragma once

#include <atomic>
#include <cstdint>

#include "backend/cuda/device/weights.h"
#include "ops/device.h"
#include "tensor/buffer.h"

namespace kvasir::backend::cuda {

struct CudaMatrix final : ops::PackedMatrix {
  using PackedMatrix::PackedMatrix;
  ~CudaMatrix() override { ++n_freed(); }
  std::size_t size_bytes() const noexcept override { return data.size_bytes(); }
  // How many there were: what remembers matrices by their addresses forgets them when it grows.
  static std::atomic<std::uint64_t>& n_freed() noexcept {
    static std::atomic<std::uint64_t> count{0};
    return count;
  }

  Weight weight{};
  Buffer data;
};

inline const CudaMatrix& matrix_of(const ops::PackedMatrix* m) noexcept {
  return static_cast<const CudaMatrix&>(*m);
}

// What pack() takes of the device's memory for it.
Result<std::size_t> packed_size_bytes(const codec::WeightMatrix& weight, ops::PackOptions options);

}  // namespace kvasir::backend::cuda
