// StepPlan: what one step does, before it is done (SCH-18): which rows feed which tokens, who was
// admitted, who left, when to wake without a message. Empty is a normal value. Made by sched/,
// carried out by engine/; buffers are reused.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"

namespace kvasir {

enum class SpanKind : std::uint8_t {
  decode,     // the pending token and its drafts
  prefill,    // prompt tokens
  completion  // the pending token of a row that ended early, its state is the caller's (EXE-20)
};

enum class WantedLogits : std::uint8_t { none, last, all };

struct PlannedRow {
  RequestId request;
  std::uint64_t begin = 0;  // absolute positions fed: [begin, end), drafts included
  std::uint64_t end = 0;
  SpanKind kind = SpanKind::decode;
  std::uint32_t drafts = 0;  // of the end
  WantedLogits wanted = WantedLogits::last;
  std::uint64_t n_tokens() const noexcept { return end - begin; }
};

struct StepPlan {
  std::vector<PlannedRow> rows;
  std::vector<RequestId> admit;
  std::vector<RequestId> evict;            // ended at this boundary: cancelled, expired, gone
  std::optional<Clock::Duration> wake_at;  // earliest deadline of anyone running or waiting

  bool empty() const noexcept { return rows.empty(); }
  void clear() noexcept {
    rows.clear();
    admit.clear();
    evict.clear();
    wake_at.reset();
  }
};

}  // namespace kvasir
