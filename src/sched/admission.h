// Who may run (SCH-1…5, SCH-20): a bounded first-in first-out queue that nothing passes, the cohort
// rule, and the KV budget. Arithmetic over counters; the engine calls it at a step boundary, on its
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "contract/group_view.h"

namespace kvasir::sched {

class WaitQueue {
 public:
  explicit WaitQueue(std::size_t limit) : limit_(limit) {}
  std::size_t size() const noexcept { return waiting_.size(); }
  bool empty() const noexcept { return waiting_.empty(); }
  bool has_room(std::size_t n) const noexcept { return n <= limit_ - waiting_.size(); }
  Status push(RequestId request);  // error: capacity `queue_full`
  std::optional<RequestId> head() const noexcept;
  void pop() noexcept { waiting_.pop_front(); }
  void remove(RequestId request) noexcept;  // wherever it waits
  const std::deque<RequestId>& waiting() const noexcept { return waiting_; }

 private:
  std::size_t limit_;
  std::deque<RequestId> waiting_;
};

// Whether the queue's head may join, the KV budget aside (SCH-4). A head too large for the cohort
// is admitted alone, once nothing else prepares (SCH-5).
bool may_admit(const GroupView& view) noexcept;

// Blocks of one pool that a row holds and may yet take (SCH-20, SCH-22).
struct BlockDemand {
  std::size_t projected = 0;  // most it will hold at once
  std::size_t held = 0;       // shared ones included: others who hold them need not pay again
  std::size_t spare = 0;      // for copies of blocks it shares
  std::size_t outstanding() const noexcept {
    return (projected > held ? projected - held : 0) + spare;
  }
};

// Whether everybody's outstanding blocks fit in what is free or reclaimable. With this kept at
// every admission, a running row cannot run dry: feeding moves blocks from available to held one
// for one.
bool budget_allows(std::span<const BlockDemand> rows, std::size_t available_blocks) noexcept;

}  // namespace kvasir::sched
