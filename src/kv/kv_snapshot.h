// KvSnapshot: a store's whole bookkeeping as plain values, for tests, fuzzers and debug builds.
// Equal snapshots mean that nothing observable differs: tables, lengths, counts, and the order in
// which free blocks will be handed out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"

namespace kvasir::kv {

inline constexpr BlockId kNoBlock{0xFFFFFFFFu};  // table entry of a released block

struct KvSnapshot {
  struct Pool {
    std::vector<std::uint32_t> refs;  // a block
    std::vector<BlockId> free;        // last is handed out next
    friend bool operator==(const Pool&, const Pool&) = default;
  };
  struct Table {
    std::uint32_t pool = 0;
    std::uint32_t window = 0;
    std::uint32_t first_position = 0;
    bool holds_state = false;  // one block, of the whole length
    std::vector<BlockId> blocks;
    friend bool operator==(const Table&, const Table&) = default;
  };
  struct State {
    std::uint32_t length = 0;
    bool in_step = false;       // then its tables have staged blocks at the end
    std::vector<Table> tables;  // one a group
    friend bool operator==(const State&, const State&) = default;
  };
  struct Row {
    KvRowId id;
    State state;
    friend bool operator==(const Row&, const Row&) = default;
  };

  std::uint32_t block_tokens = 0;
  std::vector<Pool> pools;
  std::vector<Row> rows;                     // by id
  std::vector<State> states;                 // held outside rows, oldest first
  std::vector<std::vector<BlockId>> parked;  // a pool: originals kept by open steps until they end
  friend bool operator==(const KvSnapshot&, const KvSnapshot&) = default;
};

// Empty when the books balance, else the first thing that is wrong: counts equal references, free
// and used partition the pool, tables cover exactly [first_position, length), nothing behind a
// window is held by a row outside a step.
std::string check_invariants(const KvSnapshot& snapshot);

}  // namespace kvasir::kv
