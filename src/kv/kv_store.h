// KvStore: the block memory of one model and the KV state of its rows. Owns pools of ref-counted
// blocks (a block spans block_tokens tokens of a group of layers), shared by running rows and
// cached prefixes alike; sharing is reference counting, a shared block is copied before it is
// written (KV-37). Engine thread only; must outlive its states.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "contract/kv_list.h"
#include "kv/kv_planes.h"
#include "kv/kv_scheme.h"
#include "kv/kv_snapshot.h"
#include "kv/kv_state.h"
#include "kv/kv_step.h"

namespace kvasir::ops {
class Device;
}

namespace kvasir::kv {

struct StoreCore;  // private: pools, groups, rows

struct KvStoreOptions {
  KvScheme scheme = {};             // in which form keys and values are kept
  std::uint32_t block_tokens = 64;  // a power of two, 8..512
  std::size_t budget_bytes = 0;     // of all planes together
  // Only for models whose layers differ in width, which cannot share blocks: the budget is divided
  // as rows of this many tokens, fed in chunks of split_chunk, would use it.
  std::uint32_t split_tokens = 8192;
  std::uint32_t split_chunk = 512;
};

// Whoever keeps states that may be forgotten (the prefix cache). Called inside reserve and restore.
class KvReclaimer {
 public:
  virtual ~KvReclaimer() = default;
  // Drop states until pool i has at least wanted[i] free blocks. False, with nothing dropped, when
  // that cannot be had.
  virtual bool reclaim(std::span<const std::size_t> wanted) noexcept = 0;
  // How many blocks of the pool would become free if every state that may go went.
  virtual std::size_t reclaimable(std::uint32_t pool) const noexcept = 0;
};

class KvStore {
 public:
  // Errors: the block size's own text (KV-37); those of forms_of; capacity when the budget does not
  // hold one block of every group or the device refuses the memory.
  static Result<std::unique_ptr<KvStore>> make(ops::Device& device,
                                               const KvList& list,
                                               const KvStoreOptions& options);
  ~KvStore();
  KvStore(const KvStore&) = delete;
  KvStore& operator=(const KvStore&) = delete;

  const KvList& kv_list() const noexcept;
  const KvStoreOptions& options() const noexcept;
  // KV-36, of a KV-list entry in the form that a row of that length has.
  std::string signature(std::size_t layer, std::uint32_t length) const;
  void set_reclaimer(KvReclaimer* reclaimer) noexcept;

  // Rows. Ids are never used twice. free_row, adopt, trim… need a row that is in no step (or was
  // discarded from it).
  KvRowId create_row();
  void free_row(KvRowId row) noexcept;
  std::uint32_t length(KvRowId row) const noexcept;  // committed tokens
  void adopt(KvRowId row, KvState&& state);  // starts an empty row from a prefix; nothing is copied
  KvState capture(KvRowId row) const;        // what is committed, shared
  KvState detach_row(
      KvRowId row) noexcept;      // capture and free_row in one: the row's own references move out
  KvRowId fork_row(KvRowId row);  // a new row sharing everything committed
  bool resumable_at(KvRowId row, std::uint32_t p) const noexcept;
  // Whether rows in exact form are resumable anywhere: no window lets go of a position, no state
  // stands for all of them.
  bool keeps_every_position() const noexcept;
  Status trim_to(KvRowId row, std::uint32_t p);  // as KvState::trim_to

  // Conversion (KV-20…26). A row whose length has reached the transition position converts before
  // its next step, between steps. `convert` goes layer by layer: it reserves, encodes and only then
  // lets go of the exact blocks. Error: capacity `kv blocks`; the layers done stay so, the row is
  // still due and everything readable, also for a state shared with it.
  std::uint64_t transition() const noexcept;  // kNeverEncoded: no layer converts
  bool is_due(KvRowId row) const noexcept;
  bool is_foreign(KvRowId row) const noexcept;  // KV-19: not to be published
  Status convert(KvRowId row);

  // Room for every span, shared blocks about to be written copied. All or nothing. Errors: capacity
  // `kv blocks`; invalid_argument for an unknown or repeated row, a row already in a step, an empty
  // span, a row that is due, or a span that crosses the transition position (KV-23).
  Result<KvStep> reserve(std::span<const RowSpan> spans);
  // Whether reserve would find the blocks, cached prefixes given up included. Changes nothing.
  bool can_reserve(std::span<const RowSpan> spans) const;

  // Export (KV-45) and its inverse. Errors: capacity; invalid_argument when planes do not match
  // this model.
  Result<std::vector<Buffer>> planes(const KvState& state, std::size_t layer) const;
  Result<KvPlanes> planes(const KvState& state) const;
  Result<KvState> restore(const KvPlanes& planes, KvOrigin origin = KvOrigin::own);

  // Arithmetic (KV-60). A chunk is the most tokens a row feeds in one step.
  // In the form that long rows have; what a row has once, whatever its length, is not in it.
  std::size_t bytes_per_token() const noexcept;
  std::size_t projected_bytes(std::uint64_t n_tokens, std::uint32_t max_chunk) const noexcept;
  // The same in blocks of one pool; and whether a lone row of that length fits in the whole store.
  std::size_t projected_blocks(std::uint32_t pool,
                               std::uint64_t n_tokens,
                               std::uint32_t max_chunk,
                               bool is_converted = false) const noexcept;
  bool fits(std::uint64_t n_tokens, std::uint32_t max_chunk) const noexcept;
  // The smallest budget with which a store like this one holds such a row.
  std::size_t budget_for(std::uint64_t n_tokens, std::uint32_t max_chunk) const;

  std::uint32_t n_pools() const noexcept;  // 1 unless layers differ in width or form
  std::size_t n_tables(std::uint32_t pool) const noexcept;  // block tables a row may have there
  std::size_t block_bytes(std::uint32_t pool) const noexcept;
  std::size_t total_blocks(std::uint32_t pool) const noexcept;
  std::size_t free_blocks(std::uint32_t pool) const noexcept;
  std::size_t used_blocks(std::uint32_t pool) const noexcept {
    return total_blocks(pool) - free_blocks(pool);
  }
  std::size_t available_blocks(
      std::uint32_t pool) const noexcept;  // free, or reclaimable from the cache
  std::size_t total_bytes() const noexcept;
  std::size_t used_bytes() const noexcept;
  std::size_t available_bytes() const noexcept;
  std::uint32_t refs(KvBlockRef block) const noexcept;

  KvSnapshot snapshot() const;

 private:
  explicit KvStore(std::unique_ptr<StoreCore> core) noexcept;
  std::unique_ptr<StoreCore> core_;
};

}  // namespace kvasir::kv
