// PrefixCache: which token prefixes have KV state in RAM, which to reuse and which to forget
// (CACHE-1…9, EXE-54). A radix tree over tokens a namespace; entries share blocks, a block's bytes
// count once. Taking never consumes. The engine takes at admission and puts at boundaries; the
// store reclaims through it. Engine thread only; must not outlive its store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/ids.h"
#include "base/result.h"
#include "cache/retention.h"
#include "kv/kv_store.h"

namespace kvasir::cache {

struct CacheCore;  // private: trees, entries, byte accounts

// Something bound to the very end of an entry's tokens (a draft kind's hidden state). Such an entry
// serves its full length only (CACHE-2). Shared by the entry and the hits made from it.
class Attachment {
 public:
  virtual ~Attachment() = default;
  virtual std::size_t bytes() const noexcept = 0;
};

// Pins what a hit reads: a pinned entry is never a victim (CACHE-7). Releasing is dropping it;
// outliving the cache is fine.
class Retain {
 public:
  Retain() noexcept = default;
  Retain(Retain&& other) noexcept : pins_(std::move(other.pins_)) {}
  Retain& operator=(Retain&& other) noexcept;
  ~Retain() { release(); }
  void release() noexcept;

 private:
  friend class PrefixCache;
  explicit Retain(std::shared_ptr<std::uint32_t> pins) noexcept;
  std::shared_ptr<std::uint32_t> pins_;  // owned by the entry and its guards
};

// A waypoint is kept by the way, every so many tokens of a prompt, and goes before any prefix that
// somebody asked for (CACHE-15).
enum class EntryKind : bool { prefix, waypoint };

struct PrefixHit {
  std::uint32_t length = 0;                      // p, the cached_tokens of usage (CACHE-14)
  kv::KvState state;                             // a clone of exactly p tokens, for KvStore::adopt
  std::shared_ptr<const Attachment> attachment;  // only when p is the entry's whole length
  Retain retain;
};

struct PrefixCacheOptions {
  std::size_t max_bytes = std::size_t{8} << 30;  // 0: off, nothing is kept or found
  std::size_t max_entries = std::numeric_limits<std::size_t>::max();
};

struct PrefixCacheStats {
  std::size_t entries = 0;
  std::size_t bytes = 0;  // blocks once each, and attachments
  std::size_t max_bytes = 0;
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t hit_tokens = 0;
};

class PrefixCache final : public kv::KvReclaimer {
 public:
  // Registers itself as the store's reclaimer until destroyed. No policy: LRU.
  PrefixCache(kv::KvStore& store,
              const PrefixCacheOptions& options,
              std::unique_ptr<RetentionPolicy> policy = nullptr);
  ~PrefixCache() override;
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // The longest usable prefix p ≤ prompt.size() − 1 in the namespace (KV-42, cache_namespace.h); of
  // equals the most recently used. The entry stays and counts as used.
  std::optional<PrefixHit> take(std::span<const TokenId> prompt, std::string_view ns);
  // take in two parts, for who may find that it has no room for the hit yet.
  std::optional<PrefixHit> peek(std::span<const TokenId> prompt, std::string_view ns) const;
  void count(std::span<const TokenId> prompt, std::string_view ns);
  // As take, without counting or touching anything: what admission would find.
  std::uint32_t usable_length(std::span<const TokenId> prompt, std::string_view ns) const;
  // How many first tokens, at most prompt.size() − 1, it shares with any entry, usable there or
  // not.
  std::uint32_t shared_length(std::span<const TokenId> prompt, std::string_view ns) const;

  // Keeps the state of exactly these tokens, replacing an equal entry and superseding shorter ones
  // it can stand for (CACHE-6), then evicts to the caps. Success moves the state even when it was
  // dropped at once (too large, or off). Error (state and tokens disagree), state still the
  // caller's: invalid_argument.
  Status put(std::span<const TokenId> tokens,
             kv::KvState&& state,
             std::string_view ns,
             std::shared_ptr<const Attachment> attachment = nullptr,
             EntryKind kind = EntryKind::prefix);

  void clear();
  PrefixCacheStats stats() const noexcept;

  bool reclaim(std::span<const std::size_t> wanted) noexcept override;
  std::size_t reclaimable(std::uint32_t pool) const noexcept override;

  // Empty when tree, entries and byte accounts agree, else the first thing that is wrong. For
  // tests.
  std::string check_invariants() const;

 private:
  std::unique_ptr<CacheCore> core_;
};

}  // namespace kvasir::cache
