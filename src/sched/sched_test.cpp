#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

#include "sched/admission.h"
#include "sched/policy.h"
#include "sched/prefill_span.h"
#include "sched/step_planner.h"

namespace kvasir::sched {
namespace {

using testing::ElementsAre;

TEST(PrefillSpan, EndsAtTheLeastOfItsLimits_EXE_35) {
  const std::vector<std::uint32_t> boundaries{30, 10};
  const auto end = [&](std::uint64_t position, std::uint64_t chunk, std::uint64_t budget,
                       std::uint64_t transition) {
    return next_prefill_span({100, position, chunk, budget, boundaries, transition})->end;
  };

  EXPECT_EQ(end(0, 2048, 512, kNoTransition), 10u);    // boundary
  EXPECT_EQ(end(10, 2048, 512, kNoTransition), 30u);   // the next one
  EXPECT_EQ(end(30, 2048, 512, kNoTransition), 100u);  // length
  EXPECT_EQ(end(30, 7, 512, kNoTransition), 37u);      // chunk
  EXPECT_EQ(end(30, 2048, 5, kNoTransition), 35u);     // budget
  EXPECT_EQ(end(30, 2048, 512, 40), 40u);              // transition
  EXPECT_EQ(end(40, 2048, 512, 40), 100u);             // behind it
  EXPECT_EQ(end(30, 2048, 0, kNoTransition), 30u);     // empty
  EXPECT_EQ(end(100, 2048, 512, kNoTransition), 100u);
  const std::uint64_t huge = ~std::uint64_t{0};
  EXPECT_EQ(end(30, huge, huge, kNoTransition), 100u);
}

TEST(PrefillSpan, RefusesBadNumbers_EXE_35) {
  const std::array<std::uint32_t, 1> zero{0}, beyond{101}, last{100};

  EXPECT_EQ(next_prefill_span({100, 101, 1, 1, {}}).error().what,
            "invalid prefill position or chunk size");
  EXPECT_EQ(next_prefill_span({100, 0, 0, 1, {}}).error().what,
            "invalid prefill position or chunk size");
  EXPECT_EQ(next_prefill_span({100, 0, 1, 1, zero}).error().what,
            "invalid prefill snapshot boundary");
  EXPECT_EQ(next_prefill_span({100, 0, 1, 1, beyond}).error().what,
            "invalid prefill snapshot boundary");
  EXPECT_TRUE(next_prefill_span({100, 0, 1, 1, last}));
}

TEST(WaitQueue, IsBoundedAndFirstInFirstOut_SCH_1) {
  WaitQueue queue(2);
  EXPECT_TRUE(queue.push(RequestId{1}));
  EXPECT_TRUE(queue.push(RequestId{2}));
  EXPECT_EQ(queue.push(RequestId{3}).error().what, "queue_full");

  queue.remove(RequestId{1});

  EXPECT_EQ(queue.head(), RequestId{2});
  EXPECT_TRUE(queue.has_room(1));
  EXPECT_FALSE(queue.has_room(2));
}

TEST(Admission, FollowsTheCohortRule_SCH_4) {
  GroupView view{
      .active = 1, .preparing = 0, .queued = 1, .max_rows = 4, .max_preparation_tokens = 512};
  view.next_tokens = 1'000'000;
  EXPECT_TRUE(may_admit(view)) << "nothing prepares: the head goes, whatever its size (SCH-5)";

  view.preparing = 1;
  view.preparing_tokens = 256;
  EXPECT_TRUE(may_admit(view)) << "a long prompt leaves room for one joiner";
  view.preparing_tokens = 257;
  EXPECT_FALSE(may_admit(view));
  view.next_tokens = 255;
  EXPECT_TRUE(may_admit(view));

  view.active = 3;
  EXPECT_FALSE(may_admit(view)) << "no free row (SCH-2)";
  view.active = 0;
  view.is_held = true;
  EXPECT_FALSE(may_admit(view));
  view.is_held = false;
  view.is_closed = true;
  EXPECT_FALSE(may_admit(view));
}

TEST(KvBudget, CountsWhatIsStillToCome_SCH_20) {
  const std::array<BlockDemand, 2> rows{BlockDemand{10, 4, 1}, BlockDemand{5, 6, 1}};
  EXPECT_TRUE(budget_allows(rows, 8));
  EXPECT_FALSE(budget_allows(rows, 7));
}

StepPlanner planner(std::uint32_t rows, std::uint32_t b, std::uint32_t p) {
  return *StepPlanner::make({.max_rows = rows, .max_step_tokens = b, .prefill_share = p});
}

PlanRow active(std::uint64_t id, std::uint32_t drafts = 0) {
  PlanRow row{.request = {id},
              .phase = RowPhase::active,
              .position = 100,
              .length = 50,
              .prefill_chunk = 2048};
  row.n_drafts = drafts;
  return row;
}

PlanRow preparing(std::uint64_t id, std::uint64_t length, std::uint64_t position = 0) {
  return {.request = {id}, .position = position, .length = length, .prefill_chunk = 2048};
}

std::vector<std::uint64_t> sizes(const StepPlan& plan) {
  std::vector<std::uint64_t> out;
  for (const PlannedRow& row : plan.rows) out.push_back(row.n_tokens());
  return out;
}

TEST(StepPlanner, RefusesABudgetThatCannotMakeProgress) {
  EXPECT_EQ(StepPlanner::make({.max_rows = 8, .max_step_tokens = 135}).error().what,
            "--max-step-tokens must be at least --batch + 128");
  EXPECT_TRUE(StepPlanner::make({.max_rows = 8, .max_step_tokens = 136}));
}

TEST(StepPlanner, FeedsDecodeRowsFirstAndCapsPrefillBesideThem_SCH_10_11) {
  StepPlan plan;
  const std::vector<PlanRow> rows{preparing(1, 1000), active(2), active(3)};

  planner(8, 512, 128).plan(rows, plan);

  EXPECT_THAT(sizes(plan), ElementsAre(1, 1, 128));
  EXPECT_EQ(plan.rows[0].request, RequestId{2});
  EXPECT_EQ(plan.rows[2].wanted, WantedLogits::none);
}

TEST(StepPlanner, ALonePromptTakesTheWholeBudget_SCH_11) {
  StepPlan plan;
  planner(8, 512, 128).plan(std::vector{preparing(1, 1000)}, plan);
  EXPECT_THAT(sizes(plan), ElementsAre(512));
  planner(8, 512, 128).plan(std::vector{preparing(1, 1000, 990)}, plan);
  EXPECT_THAT(sizes(plan), ElementsAre(10));
  EXPECT_EQ(plan.rows[0].wanted, WantedLogits::last);
}

TEST(StepPlanner, SharesPrefillAndGivesWhatIsLeftToTheOldest_SCH_11) {
  StepPlan plan;
  planner(8, 512, 128).plan(std::vector{preparing(1, 1000), preparing(2, 1000)}, plan);
  EXPECT_THAT(sizes(plan), ElementsAre(256, 256));
  planner(8, 512, 128).plan(std::vector{preparing(1, 1000), preparing(2, 100)}, plan);
  EXPECT_THAT(sizes(plan), ElementsAre(412, 100));
  planner(8, 512, 128)
      .plan(std::vector{active(9), preparing(1, 1000), preparing(2, 10), preparing(3, 90)}, plan);
  EXPECT_THAT(sizes(plan), ElementsAre(1, 64, 10, 54));
}

TEST(StepPlanner, ACohortOfShortPromptsSharesAStep) {
  std::vector<PlanRow> rows;
  for (std::uint64_t i = 0; i < 8; ++i) rows.push_back(preparing(i, 50));
  StepPlan plan;
  planner(8, 512, 128).plan(rows, plan);
  EXPECT_EQ(sizes(plan), std::vector<std::uint64_t>(8, 50));
}

TEST(StepPlanner, FeedsAWholePromptInOneStepEvenPastTheBudget_SCH_12) {
  const auto whole = [](std::uint64_t id, std::uint64_t length) {
    PlanRow row = preparing(id, length);
    row.is_whole = true;
    row.prefill_chunk = 64;
    return row;
  };
  StepPlan plan;
  planner(8, 512, 128).plan(std::vector{whole(1, 1000), whole(2, 10)}, plan);
  EXPECT_THAT(sizes(plan), ElementsAre(1000));
  EXPECT_EQ(plan.rows[0].wanted, WantedLogits::last);
  planner(8, 512, 128).plan(std::vector{whole(1, 300), whole(2, 213), whole(3, 212)}, plan);
  EXPECT_THAT(sizes(plan), ElementsAre(300, 212));
  EXPECT_EQ(plan.rows[1].request, RequestId{3});
  planner(8, 512, 128).plan(std::vector{active(9), whole(1, 300)}, plan);
  EXPECT_THAT(sizes(plan), ElementsAre(1, 300)) << "past P";
}

TEST(StepPlanner, GivesDraftsRoundRobinAndKeepsTheReserve_SCH_10) {
  StepPlan plan;
  planner(2, 136, 128).plan(std::vector{active(1, 100), active(2, 2)}, plan);
  EXPECT_THAT(sizes(plan), ElementsAre(101, 3));
  EXPECT_EQ(plan.rows[0].drafts, 100u);
  EXPECT_EQ(plan.rows[0].wanted, WantedLogits::all);

  planner(3, 136, 128).plan(std::vector{active(1, 100), active(2, 100), preparing(3, 1000)}, plan);

  EXPECT_THAT(sizes(plan), ElementsAre(4, 4, 128));
}

TEST(StepPlanner, SkipsPausedAndWaitingRows_SCH_43) {
  std::vector<PlanRow> rows{active(1), preparing(2, 10)};
  rows[0].is_paused = true;
  rows[1].phase = RowPhase::waiting;
  StepPlan plan;
  planner(8, 512, 128).plan(rows, plan);
  EXPECT_TRUE(plan.empty());
}

TEST(StepPlanner, CompletesACallersState_EXE_20) {
  std::vector<PlanRow> rows{active(1)};
  rows[0].phase = RowPhase::completing;
  rows[0].is_paused = true;
  StepPlan plan;
  planner(8, 512, 128).plan(rows, plan);
  ASSERT_EQ(plan.rows.size(), 1u);
  EXPECT_EQ(plan.rows[0].kind, SpanKind::completion);
  EXPECT_EQ(plan.rows[0].wanted, WantedLogits::none);
}

TEST(StepPlanner, KeepsItsInvariantsOnRandomRows_SCH_10_13) {
  std::mt19937 engine(1);
  const auto random = [&engine] { return static_cast<std::uint32_t>(engine()); };
  std::vector<std::uint32_t> boundary{70};
  for (int round = 0; round < 20000; ++round) {
    const std::uint32_t max_rows = 1 + random() % 12;
    const std::uint32_t b = max_rows + 128 + random() % 600;
    StepPlanner p = planner(max_rows, b, 128 + random() % 200);
    std::vector<PlanRow> rows;
    for (std::uint64_t i = 0; i < max_rows; ++i) {
      const std::uint32_t length = 71 + random() % 900;
      rows.push_back(random() % 2 ? active(i, random() % 20)
                                  : preparing(i, length, random() % length));
      rows.back().is_paused = random() % 4 == 0;
      if (random() % 3 == 0) rows.back().snapshot_at = boundary;
    }
    StepPlan plan;

    p.plan(rows, plan);

    std::uint64_t used = 0;
    std::vector<std::uint64_t> fed(max_rows);
    for (const PlannedRow& row : plan.rows) {
      ASSERT_GT(row.n_tokens(), 0u);
      ASSERT_EQ(fed[row.request.value], 0u);
      fed[row.request.value] = row.n_tokens();
      used += row.n_tokens();
    }
    ASSERT_LE(used, b);
    bool is_oldest = true;
    for (const PlanRow& row : rows) {
      if (row.phase == RowPhase::active) {
        ASSERT_EQ(fed[row.request.value] > 0, !row.is_paused);
      } else if (is_oldest) {
        is_oldest = false;
        const std::uint64_t allowed =
            next_prefill_span({row.length, row.position, 2048, 64, row.snapshot_at})->size();
        ASSERT_GE(fed[row.request.value], allowed);
      }
    }
  }
}

}  // namespace
}  // namespace kvasir::sched
