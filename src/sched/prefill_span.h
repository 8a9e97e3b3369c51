// next_prefill_span: where a row's next prompt chunk ends (EXE-35, SCH-12). Pure. Used by the
// planner and by submission, which asks once so that later answers cannot be errors.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "base/result.h"

namespace kvasir::sched {

inline constexpr std::uint64_t kNoTransition = std::numeric_limits<std::uint64_t>::max();

struct PrefillAsk {
  std::uint64_t length = 0;                         // of the prompt
  std::uint64_t position = 0;                       // tokens already fed
  std::uint64_t chunk = 0;                          // the request's prefill_chunk
  std::uint64_t budget = 0;                         // what the step has left
  std::span<const std::uint32_t> snapshot_at = {};  // any order
  std::uint64_t transition = kNoTransition;  // T of KV-23: a span that begins below it ends at it
};

struct TokenSpan {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t size() const noexcept { return end - begin; }
  friend bool operator==(const TokenSpan&, const TokenSpan&) = default;
};

// Errors: `invalid prefill position or chunk size`, `invalid prefill snapshot boundary`.
Result<TokenSpan> next_prefill_span(const PrefillAsk& ask);

}  // namespace kvasir::sched
