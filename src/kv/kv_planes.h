// KvPlanes: a state's bytes in a form without blocks: owned, contiguous, chronological, token-major
// (KV-45). What a disk entry stores and what a store of any block size restores. Memory belongs to
// the store's device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/buffer.h"

namespace kvasir::kv {

struct KvLayerPlanes {
  std::string signature;             // KV-36; says the form, which is one for the whole state
  std::uint32_t first_position = 0;  // the planes hold positions [first_position, length)
  // Exact: k, v. Encoded: the parts of k, then those of v, in the order of KV-17. Each is
  // [length − first_position, n_kv_heads, bytes of a row]. Latent: the latent rows, the index keys.
  // Recurrent: the convolution's tail and the delta state, which hold no position of their own.
  std::vector<Buffer> planes;
};

struct KvPlanes {
  std::uint32_t length = 0;
  std::vector<KvLayerPlanes> layers;  // one a KV-list entry
};

}  // namespace kvasir::kv
