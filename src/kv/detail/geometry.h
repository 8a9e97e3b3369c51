// How a KV list maps to pools and groups. Layers whose K and V rows have equal bytes share a pool.
// A block of a pool spans `layers_per_block` layers; a group is that many layers of one layout and
// window, sharing one block table. With layers_per_block the greatest common divisor of the class
// sizes, every group of a pool uses the same blocks: windowed and full layers draw on one budget
// and nothing is set aside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "contract/kv_list.h"
#include "kv/list.h"

namespace kvasir::kv {

struct PoolGeometry {
  std::size_t width = 0;  // elements of one token's K (or V) in one layer
  std::uint32_t layers_per_block = 0;
  std::uint32_t n_groups = 0;
  std::size_t plane_block_bytes = 0;  // one layer's K (or V) of a block
  std::size_t block_bytes() const noexcept { return 2 * layers_per_block * plane_block_bytes; }
};

struct GroupGeometry {
  std::uint32_t pool = 0;
  std::uint32_t window = 0;
  const KvLayoutOps* layout = nullptr;
  std::vector<std::uint32_t> layers;  // KV-list indices; place i uses the pool's plane pair i
};

struct LayerPlace {
  std::uint32_t group = 0;
  std::uint32_t slot = 0;  // index in GroupGeometry::layers
};

struct KvGeometry {
  std::uint32_t block_tokens = 0;
  std::size_t element_bytes = 0;
  std::vector<PoolGeometry> pools;
  std::vector<GroupGeometry> groups;
  std::vector<LayerPlace> layers;  // one a KV-list entry

  static Result<KvGeometry> make(const KvList& list,
                                 std::uint32_t block_tokens,
                                 std::size_t element_bytes);
  // Most blocks a row of n tokens, fed in chunks, holds of a pool at any time (KV-60).
  std::size_t projected_blocks(std::uint32_t pool,
                               std::uint64_t n_tokens,
                               std::uint32_t max_chunk) const noexcept;
  // Blocks that a pool of that budget gets; a budget of several pools is divided by what a row of
  // split_tokens needs.
  Result<std::vector<std::uint32_t>> divide(std::size_t budget_bytes,
                                            std::uint32_t split_tokens,
                                            std::uint32_t split_chunk) const;
};

}  // namespace kvasir::kv
