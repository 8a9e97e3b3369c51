// Aligned memory of the CPU backend: whole 2 MB pages where it is large, so that streams of weights
// miss the TLB rarely.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "tensor/buffer.h"

namespace kvasir::backend::cpu {

// from_the_front: maybe only the beginning is ever touched, which small pages then hold.
enum class MemoryUse : std::uint8_t { whole, from_the_front };

// Zeroed. Errc::capacity when the system refuses.
Result<Buffer> allocate_memory(std::size_t size_bytes, MemoryUse use = MemoryUse::whole);

// Memory of one thread or one op that grows to the largest size asked for and is never given back.
// Contents do not survive growth. Out of memory ends the process: ops cannot fail (ops/device.h).
class Scratch {
 public:
  float* floats(std::size_t n);

 private:
  Buffer buffer_;
};

}  // namespace kvasir::backend::cpu
