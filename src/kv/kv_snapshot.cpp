#include "kv/kv_snapshot.h"

#include <algorithm>
#include <utility>

#include "kv/detail/store_core.h"

namespace kvasir::kv {
namespace {

KvSnapshot::State state_of(const StoreCore& core, const StateBody& body) {
  KvSnapshot::State out{.length = body.length, .in_step = body.in_step, .tables = {}};
  for (std::size_t g = 0; g < body.tables.size(); ++g) {
    out.tables.push_back({.pool = core.geometry.groups[g].pool(body.tables[g].is_encoded),
                          .window = core.geometry.groups[g].window,
                          .first_position = body.tables[g].first_position,
                          .holds_state = core.geometry.groups[g].holds_state(),
                          .blocks = body.tables[g].blocks});
  }
  return out;
}

using Counts = std::vector<std::vector<std::uint32_t>>;  // references found, a block of a pool

std::string count(BlockId block, std::vector<std::uint32_t>& found) {
  if (block.value >= found.size()) return "block id out of range";
  ++found[block.value];
  return "";
}

std::string check_state_table(const KvSnapshot::State& state,
                              const KvSnapshot::Table& table,
                              Counts& found) {
  const std::size_t size = (state.length > 0 ? 1u : 0u) + (state.in_step ? 1u : 0u);
  if (table.first_position != state.length) return "a state is not of its row's length";
  if (table.blocks.size() != size) return "a row has not one state";
  std::string wrong;
  for (const BlockId block : table.blocks)
    if (wrong.empty()) wrong = count(block, found[table.pool]);
  return wrong;
}

std::string check_table(const KvSnapshot& snapshot,
                        const KvSnapshot::State& state,
                        const KvSnapshot::Table& table,
                        Counts& found) {
  if (table.holds_state) return check_state_table(state, table, found);
  const std::size_t bt = snapshot.block_tokens;
  const std::size_t length = state.length, first = table.first_position;
  if (first > length) return "first position beyond the length";
  if (table.window == 0 && first != 0) return "a full table lost its first blocks";
  const std::size_t size = first < length ? (length + bt - 1) / bt : length / bt;
  if (table.blocks.size() < size || (!state.in_step && table.blocks.size() != size))
    return "table size does not fit the length";
  for (std::size_t i = 0; i < table.blocks.size(); ++i) {
    const bool should_hold = i >= size || (i + 1) * bt > first;
    const BlockId block = table.blocks[i];
    if (should_hold == (block == kNoBlock)) return "a table holds not exactly its positions";
    if (block == kNoBlock) continue;
    if (std::string wrong = count(block, found[table.pool]); !wrong.empty()) return wrong;
  }
  const bool behind =
      table.window > 0 && !state.in_step && first / bt * bt + bt + table.window <= length + 1;
  return behind ? "a block wholly behind the window is held" : "";
}

std::string check_pool(const KvSnapshot::Pool& pool, const std::vector<std::uint32_t>& found) {
  if (pool.refs != found) return "reference counts differ from references";
  std::vector<bool> is_free(pool.refs.size());
  for (const BlockId block : pool.free) {
    if (block.value >= pool.refs.size() || is_free[block.value]) return "free list is broken";
    is_free[block.value] = true;
  }
  for (std::size_t i = 0; i < pool.refs.size(); ++i)
    if (is_free[i] == (pool.refs[i] > 0)) return "free and used blocks do not partition the pool";
  return "";
}

}  // namespace

KvSnapshot KvStore::snapshot() const {
  KvSnapshot out;
  out.block_tokens = core_->options.block_tokens;
  for (const BlockPool& pool : core_->pools)
    out.pools.push_back({.refs = pool.all_refs(), .free = pool.free_list()});
  for (const auto& [id, body] : core_->rows)
    out.rows.push_back({.id = id, .state = state_of(*core_, *body)});
  std::sort(out.rows.begin(), out.rows.end(),
            [](const auto& a, const auto& b) { return a.id < b.id; });
  for (const StateBody* body = core_->first_state; body; body = body->next)
    out.states.push_back(state_of(*core_, *body));
  out.parked.resize(core_->pools.size());
  for (const StepBody* step : core_->open_steps) {
    const std::size_t n_groups = core_->geometry.groups.size();
    for (std::size_t i = 0; i < step->tables.size(); ++i) {
      const StateBody* body = step->rows[i / n_groups].body;
      if (!step->tables[i].copied || !body) continue;
      const std::size_t g = i % n_groups;
      const std::uint32_t pool = core_->geometry.groups[g].pool(body->tables[g].is_encoded);
      out.parked[pool].push_back(step->tables[i].original);
    }
  }
  return out;
}

std::string check_invariants(const KvSnapshot& snapshot) {
  Counts found;
  for (const KvSnapshot::Pool& pool : snapshot.pools) found.emplace_back(pool.refs.size(), 0);
  const auto check_state = [&](const KvSnapshot::State& state) {
    std::string wrong;
    for (const KvSnapshot::Table& table : state.tables)
      if (wrong.empty()) wrong = check_table(snapshot, state, table, found);
    return wrong;
  };
  for (const KvSnapshot::Row& row : snapshot.rows)
    if (std::string wrong = check_state(row.state); !wrong.empty()) return wrong;
  for (const KvSnapshot::State& state : snapshot.states)
    if (std::string wrong = check_state(state); !wrong.empty()) return wrong;
  for (std::size_t p = 0; p < snapshot.parked.size(); ++p)
    for (const BlockId block : snapshot.parked[p]) ++found[p][block.value];
  for (std::size_t p = 0; p < snapshot.pools.size(); ++p)
    if (std::string wrong = check_pool(snapshot.pools[p], found[p]); !wrong.empty()) return wrong;
  return "";
}

}  // namespace kvasir::kv
