// How a KV list maps to pools and groups. Layers (in exact or in encoded form) whose planes have
// equal bytes a token share a pool. A block of a pool spans `layers_per_block` layers; a group is
// that many layers of one layout, window and form, sharing one block table. With layers_per_block
// the greatest common divisor of the class sizes, every group of a pool uses the same blocks:
// windowed and full layers draw on one budget and nothing is set aside. Layers that convert are
// groups of one, so that they convert one by one (KV-26).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "contract/kv_list.h"
#include "kv/kv_scheme.h"
#include "kv/list.h"

namespace kvasir::kv {

struct PoolGeometry {
  std::vector<std::size_t> token_bytes;  // of one token (or state) in one layer, a plane
  std::uint32_t layers_per_block = 0;
  std::uint32_t n_groups = 0;
  std::uint32_t block_tokens = 0;  // 1 where a block holds a state
  std::size_t plane_block_bytes(std::size_t plane) const noexcept {
    return token_bytes[plane] * block_tokens;
  }
  std::size_t block_bytes() const noexcept;
};

inline constexpr std::uint32_t kNoPool = 0xFFFFFFFFu;

struct GroupGeometry {
  std::uint32_t exact_pool = kNoPool;    // none: rows are born encoded (KV-22)
  std::uint32_t encoded_pool = kNoPool;  // none: exact for ever
  std::uint32_t window = 0;
  const KvLayoutOps* layout = nullptr;
  std::vector<std::uint32_t> layers;  // KV-list indices; place i uses the pool's planes i

  bool holds_state() const noexcept { return layout->holds_state; }
  bool converts() const noexcept { return exact_pool != kNoPool && encoded_pool != kNoPool; }
  bool is_born_encoded() const noexcept { return exact_pool == kNoPool; }
  std::uint32_t pool(bool is_encoded) const noexcept {
    return is_encoded ? encoded_pool : exact_pool;
  }
};

struct LayerPlace {
  std::uint32_t group = 0;
  std::uint32_t slot = 0;  // index in GroupGeometry::layers
};

struct KvGeometry {
  std::uint32_t block_tokens = 0;
  std::uint64_t transition = kNeverEncoded;  // T, of every layer that has an encoded form
  std::vector<PoolGeometry> pools;
  std::vector<GroupGeometry> groups;
  std::vector<LayerPlace> layers;  // one a KV-list entry

  static Result<KvGeometry> make(const KvList& list,
                                 const KvScheme& scheme,
                                 std::uint32_t block_tokens);
  // Most blocks a row of n tokens, fed in chunks, holds of a pool at any time (KV-60).
  // A row that is converted takes no exact blocks of converting layers again.
  std::size_t projected_blocks(std::uint32_t pool,
                               std::uint64_t n_tokens,
                               std::uint32_t max_chunk,
                               bool is_converted = false) const noexcept;
  // Most bytes it holds at any time: of a layer that converts, the larger of its forms (KV-60).
  std::size_t projected_bytes(std::uint64_t n_tokens, std::uint32_t max_chunk) const noexcept;
  // Blocks that a pool of that budget gets; a budget of several pools is divided by what a row of
  // split_tokens needs.
  Result<std::vector<std::uint32_t>> divide(std::size_t budget_bytes,
                                            std::uint32_t split_tokens,
                                            std::uint32_t split_chunk) const;
  // The smallest budget that, so divided, holds a lone row of n tokens. Never falls as n grows. The
  // largest number when none does.
  std::size_t budget_for(std::uint64_t n_tokens,
                         std::uint32_t max_chunk,
                         std::uint32_t split_tokens,
                         std::uint32_t split_chunk) const;
  // Of one token in the form that long rows have.
  std::size_t bytes_per_token() const noexcept;

 private:
  std::size_t group_blocks(const GroupGeometry& group,
                           bool is_encoded,
                           std::uint64_t n_tokens,
                           std::uint32_t max_chunk) const noexcept;
};

}  // namespace kvasir::kv
