// KvPlanes: a state's bytes in a form without blocks: owned, contiguous, chronological, token-major
// (KV-45). What a disk entry stores and what a store of any block size restores. Memory belongs to
// the store's device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/buffer.h"

namespace kvasir::kv {

enum class KvPlane : std::uint8_t { k, v };

struct KvLayerPlanes {
  std::string signature;             // KV-36
  std::uint32_t first_position = 0;  // the planes hold positions [first_position, length)
  Buffer k;                          // [length − first_position, n_kv_heads, head_dim]
  Buffer v;                          // same
};

struct KvPlanes {
  std::uint32_t length = 0;
  std::vector<KvLayerPlanes> layers;  // one a KV-list entry
};

}  // namespace kvasir::kv
