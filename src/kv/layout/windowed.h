// Windowed layout (KV-38): key j is visible to query q iff q − j < window. The query at p reads [p
// − window + 1, p], so after a commit to n tokens whole blocks below n − window + 1 are never read
// again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "contract/kv_list.h"

namespace kvasir::kv {

struct WindowedLayout {
  static constexpr bool kHoldsState = false;
  static bool owns(const KvLayerSpec& layer) noexcept {
    return layer.is_attention() && layer.window > 0;
  }
  static std::string signature(const KvLayerSpec& layer, std::string_view codecs) {
    return "windowed(" + std::to_string(layer.window) + "):" + std::string(codecs);
  }
  static std::uint32_t first_needed(std::uint32_t window, std::uint32_t p) noexcept {
    return p < window ? 0 : p - window + 1;
  }
  // Positions [first_position, …) are held: p works iff p − window + 1 ≥ first_position, or when
  // the query at p sees only itself (window 1).
  static std::uint32_t first_resumable(std::uint32_t window,
                                       std::uint32_t first_position) noexcept {
    return first_position == 0 || window == 1 ? 0 : first_position + window - 1;
  }
  // While a chunk runs, a row holds window − 1 committed positions, the chunk, and up to a block
  // less one on both sides together: at most ceil((window + chunk) / block) + 1 blocks (KV-60).
  static std::uint64_t projected_blocks(std::uint32_t window,
                                        std::uint64_t n_tokens,
                                        std::uint32_t max_chunk,
                                        std::uint32_t block_tokens) noexcept {
    const std::uint64_t all = (n_tokens + block_tokens - 1) / block_tokens;
    const std::uint64_t span = std::uint64_t{window} + max_chunk;
    return std::min(all, (span + block_tokens - 1) / block_tokens + 1);
  }
};

}  // namespace kvasir::kv
