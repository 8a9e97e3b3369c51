// The KV layouts. A layout is one header in layout/ with the functions of KvLayout, and one line in
// KvLayouts. Every per-layout decision of the store goes through the table made from this list;
// layers are matched in order.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/type_list.h"
#include "contract/kv_list.h"
#include "kv/layout/latent.h"
#include "kv/layout/paged.h"
#include "kv/layout/recurrent.h"
#include "kv/layout/windowed.h"

namespace kvasir::kv {

// clang-format off
template <class L>
concept KvLayout = requires(const KvLayerSpec& layer, std::string_view codec, std::uint32_t u, std::uint64_t n) {
  { L::kHoldsState } -> std::convertible_to<bool>;                      // one block a row, or a block every block_tokens
  { L::owns(layer) } -> std::same_as<bool>;                             // whether such a layer is stored this way
  { L::signature(layer, codec) } -> std::same_as<std::string>;          // KV-36; codecs: "bf16:bf16"
  { L::first_needed(u, u) } noexcept -> std::same_as<std::uint32_t>;    // (window, p): lowest position a query at p reads
  { L::first_resumable(u, u) } noexcept -> std::same_as<std::uint32_t>; // (window, first position held): lowest p > 0
  { L::projected_blocks(u, n, u, u) } noexcept -> std::same_as<std::uint64_t>; // (window, tokens, chunk, block): KV-60
};
// clang-format on

using KvLayouts = TypeList<PagedLayout, WindowedLayout, LatentLayout, RecurrentLayout>;

// A layout as a value: what the store keeps for each group of layers.
struct KvLayoutOps {
  bool holds_state = false;
  bool (*owns)(const KvLayerSpec&) noexcept;
  std::string (*signature)(const KvLayerSpec&, std::string_view codecs);
  std::uint32_t (*first_needed)(std::uint32_t window, std::uint32_t p) noexcept;
  std::uint32_t (*first_resumable)(std::uint32_t window, std::uint32_t first_position) noexcept;
  std::uint64_t (*projected_blocks)(std::uint32_t window,
                                    std::uint64_t n_tokens,
                                    std::uint32_t max_chunk,
                                    std::uint32_t block_tokens) noexcept;
};

template <KvLayout L>
inline constexpr KvLayoutOps kLayoutOps{L::kHoldsState,     L::owns,
                                        L::signature,       L::first_needed,
                                        L::first_resumable, L::projected_blocks};

// Null when no layout stores such a layer.
inline const KvLayoutOps* find_layout(const KvLayerSpec& layer) noexcept {
  const KvLayoutOps* found = nullptr;
  KvLayouts::for_each([&]<class L>() {
    if (!found && L::owns(layer)) found = &kLayoutOps<L>;
  });
  return found;
}

}  // namespace kvasir::kv
