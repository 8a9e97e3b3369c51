// Paged layout (KV-37): full attention; every position of a row stays.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "contract/kv_list.h"

namespace kvasir::kv {

struct PagedLayout {
  static constexpr bool kHoldsState = false;
  static bool owns(const KvLayerSpec& layer) noexcept {
    return layer.is_attention() && layer.window == 0;
  }
  static std::string signature(const KvLayerSpec&, std::string_view codecs) {
    return "paged:" + std::string(codecs);
  }
  static std::uint32_t first_needed(std::uint32_t, std::uint32_t) noexcept { return 0; }
  static std::uint32_t first_resumable(std::uint32_t, std::uint32_t) noexcept { return 0; }
  static std::uint64_t projected_blocks(std::uint32_t,
                                        std::uint64_t n_tokens,
                                        std::uint32_t,
                                        std::uint32_t block_tokens) noexcept {
    return (n_tokens + block_tokens - 1) / block_tokens;
  }
};

}  // namespace kvasir::kv
