// GroupView: what admission sees of everyone (EXE-56). Estimates only group work, they never refuse
// (SCH-5). Values only.
#pragma once

#include <cstdint>

namespace kvasir {

struct GroupView {
  std::uint32_t active = 0;     // rows with a sampled token to feed
  std::uint32_t preparing = 0;  // admitted, prompt not fully fed
  std::uint32_t queued = 0;
  std::uint64_t preparing_tokens = 0;  // each row as preparation_tokens (sched/policy.h) counts it
  std::uint64_t next_tokens = 0;       // of the queue's head: prompt length − cached prefix
  std::uint32_t max_rows = 0;
  std::uint64_t max_preparation_tokens = 0;
  bool is_held = false;
  bool is_closed = false;
};

}  // namespace kvasir
