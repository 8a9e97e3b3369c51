// BlockPool: reference counts and the free list of one pool. Taking is LIFO, lowest index first at
// the start (KV-62), so undoing takes in reverse order restores the list exactly. Giving back never
// allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/ids.h"

namespace kvasir::kv {

class BlockPool {
 public:
  BlockPool() = default;
  explicit BlockPool(std::uint32_t n_blocks) : refs_(n_blocks, 0) {
    free_.reserve(n_blocks);
    for (std::uint32_t i = n_blocks; i > 0; --i) free_.push_back(BlockId{i - 1});
  }

  BlockId take() noexcept {  // with one reference; callers have checked n_free
    KVASIR_CHECK(!free_.empty());
    const BlockId block = free_.back();
    free_.pop_back();
    refs_[block.value] = 1;
    return block;
  }
  void share(BlockId block) noexcept {
    KVASIR_CHECK(block.value < refs_.size() && refs_[block.value] > 0);
    ++refs_[block.value];
  }
  void drop(BlockId block) noexcept {
    KVASIR_CHECK(block.value < refs_.size() && refs_[block.value] > 0);
    if (--refs_[block.value] == 0) free_.push_back(block);  // capacity for every block is reserved
  }

  std::uint32_t refs(BlockId block) const noexcept {
    KVASIR_CHECK(block.value < refs_.size());
    return refs_[block.value];
  }
  std::size_t n_blocks() const noexcept { return refs_.size(); }
  std::size_t n_free() const noexcept { return free_.size(); }
  const std::vector<std::uint32_t>& all_refs() const noexcept { return refs_; }
  const std::vector<BlockId>& free_list() const noexcept { return free_; }

 private:
  std::vector<std::uint32_t> refs_;
  std::vector<BlockId> free_;
};

}  // namespace kvasir::kv
