// StepPlanner: which rows feed how many tokens in the next step (SCH-10…14, SCH-18): decode rows
// first, then drafts round robin, then prefill in admission order. Pure but for reused buffers:
// plan changes no row. O(rows) and one more pass per draft; allocates nothing once warm. Engine
// thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "contract/step_plan.h"
#include "sched/prefill_span.h"

namespace kvasir::sched {

struct PlannerLimits {
  std::uint32_t max_rows = 8;
  std::uint32_t max_step_tokens = 512;  // B
  std::uint32_t prefill_share = 128;    // P, at least 128
};

enum class RowPhase : std::uint8_t {
  preparing,  // prompt not fully fed
  waiting,    // preparing, and fed by another row's prefill: a choice of the same prompt
  active,     // has a sampled token to feed
  completing  // feeds its last token for the caller's state (EXE-20)
};

struct PlanRow {
  RequestId request;
  RowPhase phase = RowPhase::preparing;
  bool is_paused = false;            // SCH-43
  bool wants_prompt_logits = false;  // EXE-36
  bool is_whole = false;             // its prompt is one span, whatever its size (SCH-12)
  std::uint64_t position = 0;        // tokens in its state
  std::uint64_t length = 0;          // of the prompt
  std::uint32_t prefill_chunk = 0;
  std::uint32_t n_drafts = 0;  // proposed and within SPEC-11's other limits
  std::span<const std::uint32_t> snapshot_at = {};
  std::uint64_t transition = kNoTransition;
};

class StepPlanner {
 public:
  // Error: kStepBudgetError (policy.h); a share below 128 counts as 128.
  static Result<StepPlanner> make(const PlannerLimits& limits);
  const PlannerLimits& limits() const noexcept { return limits_; }

  // Rows in admission order → plan.rows. Everything else in the plan is left as it is.
  void plan(std::span<const PlanRow> rows, StepPlan& plan);

 private:
  explicit StepPlanner(const PlannerLimits& limits) : limits_(limits) {}
  std::uint64_t plan_decode(std::span<const PlanRow> rows, StepPlan& plan);
  std::uint64_t plan_drafts(std::span<const PlanRow> rows,
                            std::uint64_t limit,
                            std::uint64_t used,
                            StepPlan& plan);
  void plan_prefill(std::span<const PlanRow> rows, std::uint64_t budget, StepPlan& plan);

  PlannerLimits limits_;
  std::vector<std::size_t> decoding_;   // indices of rows, parallel to plan.rows
  std::vector<std::size_t> preparing_;  // indices of rows, oldest first
};

}  // namespace kvasir::sched
