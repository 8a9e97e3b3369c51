#include "sched/prefill_span.h"

#include <algorithm>

namespace kvasir::sched {

Result<TokenSpan> next_prefill_span(const PrefillAsk& ask) {
  if (ask.position > ask.length || ask.chunk == 0)
    return invalid("invalid prefill position or chunk size");
  std::uint64_t end =
      std::min(ask.length, ask.position + std::min({ask.chunk, ask.budget, ask.length}));
  for (const std::uint32_t boundary : ask.snapshot_at) {
    if (boundary == 0 || boundary > ask.length) return invalid("invalid prefill snapshot boundary");
    if (boundary > ask.position) end = std::min<std::uint64_t>(end, boundary);
  }
  if (ask.transition > ask.position) end = std::min(end, ask.transition);
  return TokenSpan{ask.position, end};
}

}  // namespace kvasir::sched
