// CacheCore: entries, the trees that find them, and the account of the blocks they hold. Keeps the
// three in agreement; what to take, supersede or evict is decided in prefix_cache.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/detail/radix_tree.h"
#include "cache/prefix_cache.h"
#include "kv/kv_store.h"

namespace kvasir::cache {

struct CacheEntry {
  RetentionEntry info;
  EntryKind kind = EntryKind::prefix;
  kv::KvState state;
  std::shared_ptr<const Attachment> attachment;  // co-owned by hits
  std::shared_ptr<std::uint32_t> pins;           // co-owned by the guards of hits
  RadixTree* tree = nullptr;
  RadixNode* node = nullptr;
  std::uint32_t length() const noexcept { return state.length(); }
  bool pinned() const noexcept { return *pins > 0; }
};

// How many entries hold each block, and the bytes of all blocks held at least once.
class BlockAccount {
 public:
  explicit BlockAccount(const kv::KvStore& store);
  void add(const kv::KvState& state);
  void remove(const kv::KvState& state);
  std::size_t bytes() const noexcept { return bytes_; }
  std::uint32_t count(kv::KvBlockRef block) const noexcept {
    return counts_[block.pool][block.block.value];
  }
  const std::vector<std::uint32_t>& counts(std::uint32_t pool) const noexcept {
    return counts_[pool];
  }

 private:
  const kv::KvStore& store_;
  std::vector<std::vector<std::uint32_t>> counts_;  // [n_pools, n_blocks]
  std::size_t bytes_ = 0;
};

struct CacheCore {
  kv::KvStore& store;
  PrefixCacheOptions options;
  std::unique_ptr<RetentionPolicy> policy;
  std::map<std::string, std::unique_ptr<RadixTree>, std::less<>> trees;  // by namespace
  std::vector<std::unique_ptr<CacheEntry>> entries;                      // oldest first
  BlockAccount account;
  std::size_t attachment_bytes = 0;
  std::uint64_t clock = 0;
  std::uint64_t hits = 0, misses = 0, hit_tokens = 0;

  CacheCore(kv::KvStore& owner,
            const PrefixCacheOptions& chosen,
            std::unique_ptr<RetentionPolicy> retention);

  struct Found {
    CacheEntry* entry = nullptr;
    std::uint32_t length = 0;
  };
  Found find(std::span<const TokenId> prompt, std::string_view ns) const;
  std::size_t bytes() const noexcept { return account.bytes() + attachment_bytes; }

  CacheEntry& add(std::span<const TokenId> tokens,
                  std::string_view ns,
                  std::unique_ptr<CacheEntry> entry);
  void supersede_ancestors(CacheEntry& entry);
  void touch(CacheEntry& entry, std::uint64_t cost);
  void remove(CacheEntry& entry);  // destroys it; its node goes when useless
  void evict(CacheEntry& entry);   // remove, told to the policy
  void evict_to_caps();
  void drop_empty_trees();
  std::vector<CacheEntry*> unpinned() const;
  CacheEntry* victim_of(std::span<CacheEntry* const> candidates) const;
  // Whether evicting everything unpinned would free the block.
  bool frees(kv::KvBlockRef block, const std::vector<std::vector<bool>>& kept) const;
  std::vector<std::vector<bool>> blocks_of_pinned() const;  // [n_pools, n_blocks]
};

}  // namespace kvasir::cache
