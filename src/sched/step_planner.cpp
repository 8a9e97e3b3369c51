#include "sched/step_planner.h"

#include <algorithm>

#include "base/check.h"
#include "sched/policy.h"

namespace kvasir::sched {
namespace {

// Its next span if the step had `budget` tokens left. Submission has checked the row's numbers.
TokenSpan span_of(const PlanRow& row, std::uint64_t position, std::uint64_t budget) {
  if (row.is_whole) return {position, row.length};
  const Result<TokenSpan> span = next_prefill_span({.length = row.length,
                                                    .position = position,
                                                    .chunk = row.prefill_chunk,
                                                    .budget = budget,
                                                    .snapshot_at = row.snapshot_at,
                                                    .transition = row.transition});
  KVASIR_CHECK(span.has_value()) << "a running row has an invalid prefill";
  return *span;
}

PlannedRow prefill_row(const PlanRow& row, TokenSpan span) {
  const bool is_last = span.end == row.length;
  const WantedLogits wanted = row.wants_prompt_logits ? WantedLogits::all
                              : is_last               ? WantedLogits::last
                                                      : WantedLogits::none;
  return {row.request, span.begin, span.end, SpanKind::prefill, 0, wanted};
}

}  // namespace

Result<StepPlanner> StepPlanner::make(const PlannerLimits& limits) {
  if (limits.max_rows == 0) return invalid("--batch must be at least 1");
  if (!step_budget_is_enough(limits.max_step_tokens, limits.max_rows))
    return invalid(std::string(kStepBudgetError));
  return StepPlanner(limits);
}

void StepPlanner::plan(std::span<const PlanRow> rows, StepPlan& plan) {
  plan.rows.clear();
  decoding_.clear();
  preparing_.clear();
  bool is_anyone_active = false;
  bool is_anyone_preparing = false;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    is_anyone_active |= rows[i].phase == RowPhase::active;
    is_anyone_preparing |= rows[i].phase == RowPhase::preparing;
    if (rows[i].phase == RowPhase::preparing) preparing_.push_back(i);
  }
  std::uint64_t used = plan_decode(rows, plan);
  const std::uint64_t reserve = draft_reserve(is_anyone_preparing);
  used = plan_drafts(rows, limits_.max_step_tokens - reserve, used, plan);
  plan_prefill(
      rows, prefill_budget(limits_.max_step_tokens, used, is_anyone_active, limits_.prefill_share),
      plan);
}

std::uint64_t StepPlanner::plan_decode(std::span<const PlanRow> rows, StepPlan& plan) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const PlanRow& row = rows[i];
    if (row.phase == RowPhase::completing) {
      plan.rows.push_back({row.request, row.position, row.position + 1, SpanKind::completion, 0,
                           WantedLogits::none});
    } else if (row.phase == RowPhase::active && !row.is_paused) {
      plan.rows.push_back(
          {row.request, row.position, row.position + 1, SpanKind::decode, 0, WantedLogits::last});
    } else {
      continue;
    }
    decoding_.push_back(i);
  }
  return plan.rows.size();
}

std::uint64_t StepPlanner::plan_drafts(std::span<const PlanRow> rows,
                                       std::uint64_t limit,
                                       std::uint64_t used,
                                       StepPlan& plan) {
  bool has_given = true;
  while (has_given && used < limit) {
    has_given = false;
    for (std::size_t i = 0; i < plan.rows.size() && used < limit; ++i) {
      PlannedRow& planned = plan.rows[i];
      if (planned.kind != SpanKind::decode || planned.drafts >= rows[decoding_[i]].n_drafts)
        continue;
      ++planned.drafts;
      ++planned.end;
      planned.wanted = WantedLogits::all;
      ++used;
      has_given = true;
    }
  }
  return used;
}

void StepPlanner::plan_prefill(std::span<const PlanRow> rows,
                               std::uint64_t budget,
                               StepPlan& plan) {
  if (preparing_.empty()) return;
  const PlanRow& oldest = rows[preparing_.front()];
  const std::uint64_t first =
      span_of(oldest, oldest.position, oldest_share(budget, preparing_.size() == 1)).size();
  const std::size_t oldest_at = plan.rows.size();
  plan.rows.push_back({});  // filled below, when it is known what the others leave
  std::uint64_t left = budget - std::min(first, budget);
  for (std::size_t i = 1; i < preparing_.size() && left > 0; ++i) {
    const PlanRow& row = rows[preparing_[i]];
    const TokenSpan span = span_of(row, row.position, left);
    if (span.size() > left) continue;  // whole: its turn comes when it is the oldest, at the latest
    plan.rows.push_back(prefill_row(row, span));
    left -= span.size();
  }
  plan.rows[oldest_at] = prefill_row(oldest, span_of(oldest, oldest.position, first + left));
}

}  // namespace kvasir::sched
