// Columns that each GPU of a team has computed, on their way to all others: every member's kernel
// writes its own columns into the others' memory and returns when theirs have arrived. The members
// meet through flags in each other's memory, so that the host takes no part and the launch can be
// in a graph. Meetings are counted in device memory: members make them in the same order.
#pragma once

#include "backend/cuda/device/launch.h"

namespace kvasir::backend::cuda {

constexpr std::uint32_t kMaxMembers = 8;
constexpr std::uint32_t kMaxRuns = 4;
constexpr std::uint32_t kExchangeBlocks = 48;  // at most; all of them are on the GPU at once

// Columns [from, from + count) of what the member has become [to, to + count) of everybody's
// matrix.
struct ColumnRun {
  std::uint32_t from, to, count;
};

// A member's flags: [kExchangeBlocks][kMaxMembers], written by the others, then what it has counted
// itself: [kExchangeBlocks].
constexpr std::size_t kFlagWords = std::size_t{kExchangeBlocks} * (kMaxMembers + 1);

struct ExchangeArgs {
  const float* own;              // [n_rows, …] of self, elsewhere or in its matrix
  std::size_t own_stride;        // elements from one row to the next
  float* matrices[kMaxMembers];  // the same matrix in every member's memory
  std::size_t stride;
  std::uint32_t* flags[kMaxMembers];  // zeros at first
  std::uint32_t n_members, self;
  std::uint32_t n_rows, n_runs;
  ColumnRun runs[kMaxRuns];  // of self
};

// Members' calls that belong together have the same rows and as many columns. What one of them
// writes is not what another still has to send: own columns lie outside of everybody else's runs.
void launch_exchange(Queue& queue, const ExchangeArgs& args);

}  // namespace kvasir::backend::cuda
