// StoreCore: the store's data, and the moves on it that states, steps and export share. Nothing
// here decides policy; each function keeps the books balanced or says so.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "kv/detail/block_pool.h"
#include "kv/detail/geometry.h"
#include "kv/kv_snapshot.h"
#include "kv/kv_store.h"
#include "tensor/buffer.h"

namespace kvasir::kv {

struct StateTable {
  // blocks[p / block_tokens] holds position p; kNoBlock below first_position. Of a group that holds
  // states: the one of the whole length, and while in a step the next one behind it.
  std::vector<BlockId> blocks;
  std::uint32_t first_position = 0;  // positions [first_position, length) are held
  bool is_encoded = false;           // the form, and with it the pool, of all blocks
};

struct StateBody {
  StoreCore* core = nullptr;
  std::uint32_t length = 0;
  std::uint32_t min_reusable = 0;  // KV-43: where it was converted; 0: exact, or born encoded
  bool in_step = false;
  bool is_foreign = false;         // KV-19
  std::vector<StateTable> tables;  // one a group
  StateBody* previous = nullptr;   // the core's list of states held outside rows
  StateBody* next = nullptr;
};

struct StagedTable {
  std::uint32_t old_size = 0;  // blocks before the step; those after it are staged
  bool copied = false;         // the tail block was shared and is now a copy
  std::uint32_t copied_index = 0;
  BlockId original;  // of that copy, referenced until the row is committed or rolled back
};

struct StagedRow {
  StateBody* body = nullptr;  // null once committed, rolled back or discarded
  std::uint32_t n_tokens = 0;
  std::uint32_t n_drafts = 0;
};

struct StepBody {
  StoreCore* core = nullptr;
  std::vector<StagedRow> rows;
  std::vector<StagedTable> tables;       // [n_rows staged so far, n_groups]
  std::vector<KvRowView> row_views;      // [n_groups, n_rows]
  std::vector<KvLayerView> layer_views;  // these three: one a KV-list entry
  std::vector<LatentLayerView> latent_views;
  std::vector<RecurrentLayerView> recurrent_views;
  std::vector<RecurrentRowView> recurrent_rows;  // [recurrent layers, n_rows]

  explicit StepBody(StoreCore& owner);
  ~StepBody();
  StepBody(const StepBody&) = delete;
  StepBody& operator=(const StepBody&) = delete;

  // Whether a row may take part in a step.
  static Status check_row(const StoreCore& core, const StateBody& body, const RowSpan& span);
  Status open_rows(std::span<const RowSpan> spans);
  void stage_rows();
  void make_views();
  void roll_back(std::size_t index) noexcept;
  void commit(std::size_t index, std::uint32_t keep) noexcept;

 private:
  void stage_table(StateBody& body, std::uint32_t group, std::uint32_t n_tokens);
  void stage_state(StateBody& body, std::uint32_t group);
  void make_row_views();
  std::span<const RecurrentRowView> make_recurrent_rows(std::size_t layer);
};

// A layer's plane of a form: rows [n_blocks][n_heads][block_tokens][row_bytes]. Latent rows have
// one head; a state is one row of one head and one token.
struct PlaneView {
  std::byte* data = nullptr;
  std::size_t row_bytes = 0;
  std::uint32_t n_heads = 1;
  std::uint32_t block_tokens = 1;

  std::byte* row(BlockId block, std::uint32_t head, std::uint32_t slot) const noexcept {
    return data + ((std::size_t{block.value} * n_heads + head) * block_tokens + slot) * row_bytes;
  }
};

struct StoreCore {
  ops::Device& device;
  KvList list;
  KvStoreOptions options;
  KvGeometry geometry;
  std::vector<BlockPool> pools;
  std::vector<KvLayerForm> forms;                        // one a KV-list entry
  std::vector<std::vector<std::vector<Buffer>>> planes;  // [n_pools, layers_per_block, n_planes]
  std::unordered_map<KvRowId, std::unique_ptr<StateBody>> rows;
  std::uint32_t next_row = 0;
  StateBody* first_state = nullptr;
  StateBody* last_state = nullptr;
  std::vector<const StepBody*> open_steps;
  KvReclaimer* reclaimer = nullptr;

  StoreCore(ops::Device& memory,
            const KvList& layers,
            const KvStoreOptions& chosen,
            KvGeometry shape,
            std::vector<KvLayerForm> layer_forms)
      : device(memory),
        list(layers),
        options(chosen),
        geometry(std::move(shape)),
        forms(std::move(layer_forms)) {}

  std::uint32_t heads_of_pool(std::uint32_t pool) const noexcept;
  Status allocate_planes(std::uint32_t pool, std::uint32_t n_blocks);

  std::unique_ptr<StateBody> new_body();
  StateBody& row(KvRowId id) const noexcept;       // checks that it exists
  StateBody& idle_row(KvRowId id) const noexcept;  // and is in no step
  void link(StateBody& body) noexcept;
  void unlink(StateBody& body) noexcept;

  bool resumable_at(const StateBody& body, std::uint32_t p) const noexcept;
  std::uint32_t first_resumable(const StateBody& body) const noexcept;
  std::unique_ptr<StateBody> clone_prefix(const StateBody& body, std::uint32_t p);
  Status trim_to(StateBody& body, std::uint32_t p);
  void drop_all(StateBody& body) noexcept;
  void release_behind_windows(StateBody& body) noexcept;

  // Blocks, a pool, that a span of n tokens takes from the row as it is; added to `needed`.
  void add_needed(const StateBody& body,
                  std::uint32_t n_tokens,
                  std::span<std::size_t> needed) const noexcept;
  bool tail_is_shared(const StateBody& body, std::uint32_t group) const noexcept;
  // Makes the pools have that many free blocks, forgetting cached states if it must. Error: `kv
  // blocks`.
  Status make_room(std::span<const std::size_t> needed);

  BlockPool& pool_of(std::size_t group, bool is_encoded) noexcept {
    return pools[geometry.groups[group].pool(is_encoded)];
  }
  const BlockPool& pool_of(std::size_t group, bool is_encoded) const noexcept {
    return pools[geometry.groups[group].pool(is_encoded)];
  }

  // Conversion (KV-24…26): whether a row must convert before it steps on, and doing it, group by
  // group. Error: `kv blocks`; groups already converted stay so, the others exact and complete.
  bool converts() const noexcept {
    return std::any_of(geometry.groups.begin(), geometry.groups.end(),
                       [](const GroupGeometry& group) { return group.converts(); });
  }
  bool is_due(const StateBody& body) const noexcept;
  Status convert(StateBody& body);
  Status convert_group(StateBody& body, std::uint32_t group);

  // Slots [begin, end) of a block, in every layer of the group.
  void copy_slots(std::uint32_t group,
                  bool is_encoded,
                  BlockId from,
                  BlockId to,
                  std::uint32_t begin,
                  std::uint32_t end) noexcept;
  // Without rows.
  KvLayerView layer_view(std::size_t layer) const noexcept;
  LatentLayerView latent_view(std::size_t layer) const noexcept;
  RecurrentLayerView recurrent_view(std::size_t layer) const noexcept;
  std::vector<PlaneView> layer_planes(std::size_t layer, bool is_encoded) const;
  std::string signature(std::size_t layer, bool is_encoded) const;
  // Blocks a table has when a row of that length rests.
  std::uint32_t table_size(const GroupGeometry& group, std::uint64_t n_tokens) const noexcept {
    return group.holds_state() ? (n_tokens > 0 ? 1 : 0) : blocks_for(n_tokens);
  }
  std::uint32_t blocks_for(std::uint64_t n_tokens) const noexcept {
    return static_cast<std::uint32_t>((n_tokens + options.block_tokens - 1) / options.block_tokens);
  }
};

}  // namespace kvasir::kv
