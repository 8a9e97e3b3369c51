// The planner's numbers (SCH-4, SCH-10…13), as arithmetic. Derivation of the progress rule: decode
// feeds at most max_rows tokens, drafts stop at B − kPrefillReserve, and B ≥ max_rows +
// kPrefillReserve, so prefill always has at least kPrefillReserve tokens; its share P is at least
// that too; of several rows the oldest gets at least kProgressTokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace kvasir::sched {

inline constexpr std::uint64_t kPrefillReserve =
    128;  // kept from drafts while a row prepares; least P
inline constexpr std::uint64_t kProgressTokens =
    64;  // what the oldest preparing row gets in every step

inline constexpr std::string_view kStepBudgetError =
    "--max-step-tokens must be at least --batch + 128";

constexpr bool step_budget_is_enough(std::uint64_t max_step_tokens,
                                     std::uint64_t max_rows) noexcept {
  return max_step_tokens >= max_rows + kPrefillReserve;
}

// What a preparing row counts for in its cohort: a long prompt leaves room for one joiner (SCH-4).
constexpr std::uint64_t preparation_tokens(std::uint64_t remaining,
                                           std::uint64_t max_step_tokens) noexcept {
  return std::min(remaining, max_step_tokens / 2);
}

// Tokens drafts may not use (SCH-10).
constexpr std::uint64_t draft_reserve(bool is_anyone_preparing) noexcept {
  return is_anyone_preparing ? kPrefillReserve : 0;
}

// Prefill tokens of a step in which decode used `used` (SCH-11).
constexpr std::uint64_t prefill_budget(std::uint64_t max_step_tokens,
                                       std::uint64_t used,
                                       bool is_anyone_active,
                                       std::uint64_t share) noexcept {
  const std::uint64_t left = max_step_tokens - std::min(used, max_step_tokens);
  return is_anyone_active ? std::min(left, std::max(share, kPrefillReserve)) : left;
}

// The oldest row's first helping while others prepare too (SCH-11).
constexpr std::uint64_t oldest_share(std::uint64_t budget, bool is_alone) noexcept {
  return is_alone ? budget : std::min(budget, std::max(kProgressTokens, budget / 2));
}

}  // namespace kvasir::sched
