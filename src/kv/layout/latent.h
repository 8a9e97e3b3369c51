// Latent layout (KV-40): a token is one row for all heads, and an index key in the same slot where
// the layer has a sparse index. Paged rules apply.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "contract/kv_list.h"
#include "kv/layout/paged.h"

namespace kvasir::kv {

struct LatentLayout : PagedLayout {
  static bool owns(const KvLayerSpec& layer) noexcept { return layer.is_latent(); }
  static std::string signature(const KvLayerSpec& layer, std::string_view) {
    return layer.latent.index_dim > 0 ? "latent+index" : "latent";
  }
};

}  // namespace kvasir::kv
