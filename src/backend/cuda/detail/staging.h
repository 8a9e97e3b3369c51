// Staging: a step's host values on their way to the device: pinned buffers, which take turns, and
// their twin on the device. Spans get the same places in every step that stages spans of the same
// sizes, up to the next power of two, in the same order: parameters that point at them stay equal.
// The twin is overwritten in the stream's order, a pinned buffer when its copies have run. One
// thread.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <vector>

#include "tensor/buffer.h"

namespace kvasir::backend::cuda {

class Staging {
 public:
  Staging() = default;
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  // All of the same size: room for one step.
  void set_buffers(Buffer first, Buffer second, Buffer device) noexcept;
  std::size_t size_bytes() const noexcept { return device_.size_bytes(); }

  void begin_step(cudaStream_t stream) noexcept;
  void end_step(cudaStream_t stream) noexcept;  // what it staged was uploaded

  bool has_room(std::size_t size_bytes) const noexcept;
  // Everything staged so far is forgotten: the stream has run dry.
  void restart() noexcept;

  // Where a span will be: the host's side, to be filled if it is new, and the device's. The same
  // key and size mean the same span within a step; outside a step every span is new.
  struct Place {
    std::byte* host;
    std::byte* device;
    bool is_new;
  };
  Place reserve(std::size_t size_bytes, const void* key, std::size_t key_size) noexcept;
  // What was there under a key is another span now: the next reserve() finds a new place.
  void forget(const void* key, std::size_t key_size) noexcept;
  // Copies what was staged since the last call.
  void upload(cudaStream_t stream) noexcept;
  cudaError_t take_error() noexcept;

 private:
  struct Known {
    const void* key;
    std::size_t size;
    std::size_t at;
  };
  struct Pinned {
    Buffer memory;
    cudaEvent_t copied = nullptr;  // its last upload, if is_busy
    bool is_busy = false;
  };
  Pinned& pinned() noexcept { return pinned_[current_]; }
  void take_turns(cudaStream_t stream) noexcept;
  static std::size_t capacity_of(std::size_t size_bytes) noexcept;
  const Known* find(const void* key, std::size_t key_size) const noexcept;
  void note(cudaError_t error) noexcept {
    if (error != cudaSuccess && error_ == cudaSuccess) error_ = error;
  }

  Pinned pinned_[2];
  int current_ = 0;
  Buffer device_;
  std::size_t used_ = 0, uploaded_ = 0;
  bool in_step_ = false;
  cudaError_t error_ = cudaSuccess;
  std::vector<Known> known_;
};

}  // namespace kvasir::backend::cuda
