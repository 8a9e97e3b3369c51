// Staging: a step's host values on their way to the device: a pinned buffer and its twin on the
// device. Spans get the same places in every step that stages the same ones in the same order, in
// powers of two of their sizes. One thread.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <span>
#include <vector>

#include "tensor/buffer.h"

namespace kvasir::backend::cuda {

class Staging {
 public:
  // Room for one step; both halves are taken at once.
  void set_buffers(Buffer pinned, Buffer device) noexcept;
  void begin_step() noexcept;
  void end_step() noexcept;
  // Where `bytes` will be on the device. key: what stands for the span within a step (its address);
  // the same key and size are copied once. Outside a step nothing is remembered. now: copied before
  // the call returns; else with upload().
  const std::byte* stage(std::span<const std::byte> bytes,
                         const void* key,
                         cudaStream_t stream,
                         bool now) noexcept;
  // Room to fill: the host's side and the device's. commit() when it is filled.
  struct Place {
    std::byte* host;
    const std::byte* device;
    bool is_new;
  };
  Place reserve(std::size_t size_bytes, const void* key, std::size_t key_size) noexcept;
  void commit(const Place& place, std::size_t size_bytes, cudaStream_t stream, bool now) noexcept;
  // Everything staged and not copied yet.
  void upload(cudaStream_t stream) noexcept;
  cudaError_t take_error() noexcept;

 private:
  struct Known {
    const void* key;
    std::size_t size;
    std::size_t at;
  };
  void note(cudaError_t error) noexcept {
    if (error != cudaSuccess && error_ == cudaSuccess) error_ = error;
  }

  Buffer pinned_, device_;
  std::size_t used_ = 0;
  bool in_step_ = false;
  cudaError_t error_ = cudaSuccess;
  std::vector<Known> known_;
};

}  // namespace kvasir::backend::cuda
