// The KV list: the layers of a model that own state, in order (spec KV). Borrowing layers are not
// in it.
#pragma once

#include <cstdint>
#include <vector>

namespace kvasir {

struct KvLayerSpec {
  std::uint32_t n_kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t window = 0;  // 0: full attention (paged); > 0: windowed, q − j < window (KV-31)
  friend bool operator==(const KvLayerSpec&, const KvLayerSpec&) = default;
};

using KvList = std::vector<KvLayerSpec>;

}  // namespace kvasir
