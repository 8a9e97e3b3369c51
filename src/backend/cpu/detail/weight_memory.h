// Memory of weights: many of a model's are smaller than a huge page, so they lie side by side in
// large ones; a stream of weights on small pages misses the TLB too often to reach the bandwidth.
// allocate: one thread; buffers may be freed on any, and outlive this.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "tensor/buffer.h"

namespace kvasir::backend::cpu {

class WeightMemory {
 public:
  WeightMemory() = default;
  ~WeightMemory();
  WeightMemory(const WeightMemory&) = delete;
  WeightMemory& operator=(const WeightMemory&) = delete;

  // Zeroed. Errc::capacity when the system refuses.
  Result<Buffer> allocate(std::size_t size_bytes);

 private:
  struct Region;
  static void give_back(void* region, std::byte*, std::size_t) noexcept;
  bool start_region();

  Region* region_ = nullptr;  // counts its users, of whom this is one
};

}  // namespace kvasir::backend::cpu
