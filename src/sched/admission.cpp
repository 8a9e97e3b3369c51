#include "sched/admission.h"

#include <algorithm>

#include "sched/policy.h"

namespace kvasir::sched {

Status WaitQueue::push(RequestId request) {
  if (!has_room(1)) return Error{Errc::capacity, "queue_full"};
  waiting_.push_back(request);
  return {};
}

std::optional<RequestId> WaitQueue::head() const noexcept {
  if (waiting_.empty()) return std::nullopt;
  return waiting_.front();
}

void WaitQueue::remove(RequestId request) noexcept {
  const auto found = std::find(waiting_.begin(), waiting_.end(), request);
  if (found != waiting_.end()) waiting_.erase(found);
}

bool may_admit(const GroupView& view) noexcept {
  if (view.is_held || view.is_closed || view.queued == 0) return false;
  if (view.active + view.preparing >= view.max_rows) return false;
  if (view.preparing == 0) return true;
  const std::uint64_t next = preparation_tokens(view.next_tokens, view.max_preparation_tokens);
  return view.preparing_tokens + next <= view.max_preparation_tokens;
}

bool budget_allows(std::span<const BlockDemand> rows, std::size_t available_blocks) noexcept {
  std::size_t outstanding = 0;
  for (const BlockDemand& row : rows) outstanding += row.outstanding();
  return outstanding <= available_blocks;
}

}  // namespace kvasir::sched
