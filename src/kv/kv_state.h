// KvState: what a prefix of tokens left behind: shared references to blocks, one table a group of
// layers, and a length. Invariant: every named block is counted in its pool; blocks are freed with
// the last reference. Move-only; made by KvStore, must not outlive it. Held by the prefix cache and
// by callers between requests. Engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace kvasir::kv {

class KvStore;
struct StateBody;  // private: the tables

// A physical block, named together with its pool (layers of unequal width live in different pools).
struct KvBlockRef {
  std::uint32_t pool = 0;
  BlockId block;
  friend bool operator==(const KvBlockRef&, const KvBlockRef&) = default;
};

class KvState {
 public:
  KvState() noexcept;  // holds nothing; only to be assigned to
  KvState(KvState&& other) noexcept;
  KvState& operator=(KvState&& other) noexcept;
  ~KvState();

  explicit operator bool() const noexcept { return body_ != nullptr; }
  std::uint32_t length() const noexcept;  // tokens covered
  std::size_t bytes() const noexcept;     // of all blocks held, shared ones included

  // Whether a row may continue from the first p ≤ length tokens: every layer holds what the query
  // at p reads (KV-37/38).
  bool resumable_at(std::uint32_t p) const noexcept;
  // The largest resumable position ≤ p; 0 when there is none.
  std::uint32_t resumable_floor(std::uint32_t p) const noexcept;
  // Encoded state cannot go back below the position where it was converted (KV-43); 0 otherwise.
  std::uint32_t min_reusable() const noexcept;
  // Whether this state, whose tokens extend the shorter one's, is resumable wherever the shorter
  // one is (CACHE-6).
  bool serves_all_of(const KvState& shorter) const noexcept;

  KvState clone() const;  // reference counts only
  // The first p tokens, shared. p must be resumable.
  KvState clone_prefix(std::uint32_t p) const;
  // Rewinds to p tokens and drops tail blocks. Error, state unchanged: p beyond the length or not
  // resumable.
  Status trim_to(std::uint32_t p);

  void append_blocks(std::vector<KvBlockRef>& out) const;  // every block held, each once

 private:
  friend class KvStore;
  explicit KvState(std::unique_ptr<StateBody> body) noexcept;
  std::unique_ptr<StateBody> body_;
};

}  // namespace kvasir::kv
