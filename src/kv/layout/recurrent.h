// Recurrent layout (KV-39): a row is one state, whatever its length, held by a block of its own. A
// step reads the committed state and leaves the next one in another block, so a rollback finds the
// first untouched. Resumable where it stands and nowhere else: the first position held is its
// length.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "contract/kv_list.h"

namespace kvasir::kv {

struct RecurrentLayout {
  static constexpr bool kHoldsState = true;
  static bool owns(const KvLayerSpec& layer) noexcept { return layer.is_recurrent(); }
  static std::string signature(const KvLayerSpec&, std::string_view) { return "recurrent"; }
  static std::uint32_t first_needed(std::uint32_t, std::uint32_t p) noexcept { return p; }
  static std::uint32_t first_resumable(std::uint32_t, std::uint32_t first_position) noexcept {
    return first_position;
  }
  static std::uint64_t projected_blocks(std::uint32_t,
                                        std::uint64_t n_tokens,
                                        std::uint32_t,
                                        std::uint32_t) noexcept {
    return n_tokens > 0 ? 2 : 0;
  }
};

}  // namespace kvasir::kv
