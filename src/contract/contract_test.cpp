#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "contract/cancellation.h"
#include "contract/draft_acceptance.h"
#include "contract/execution_context.h"
#include "contract/generate_options.h"
#include "contract/group_view.h"
#include "contract/outcome.h"
#include "contract/resources.h"
#include "contract/sink.h"
#include "contract/step_plan.h"

namespace kvasir {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Cancellation, TheFirstReasonStays) {
  CancellationSource source;
  const CancellationToken token = source.token();
  EXPECT_FALSE(token.reason());
  EXPECT_FALSE(CancellationToken().reason());

  source.cancel(CancelReason::consumer_closed);
  source.cancel(CancelReason::deadline);

  EXPECT_EQ(token.reason(), CancelReason::consumer_closed);
}

TEST(Stats, RatesAreZeroWithoutTime) {
  Stats stats;
  stats.prompt_tokens = 10;
  EXPECT_EQ(stats.prefill_tokens_per_s(), 0.0);
  EXPECT_EQ(stats.decode_tokens_per_s(), 0.0);

  stats.cached_tokens = 5;
  stats.prefill_ms = 10;
  stats.generated_tokens = 3;
  stats.decode_ms = 4;

  EXPECT_EQ(stats.prefill_tokens_per_s(), 500.0);
  EXPECT_EQ(stats.decode_tokens_per_s(), 500.0);
}

// EXE-50…52
struct Change final : PreparedChange {
  Change(std::vector<std::string>& log_, int n_) : log(log_), n(n_) {}
  ~Change() override { log.push_back((committed ? "old " : "new ") + std::to_string(n)); }
  void commit() noexcept override { committed = true; }
  std::vector<std::string>& log;
  int n;
  bool committed = false;
};

using Builder = std::function<Result<std::unique_ptr<PreparedChange>>()>;

std::vector<Builder> builders(std::vector<std::string>& log, int n, int failing) {
  std::vector<Builder> out;
  for (int i = 0; i < n; ++i) {
    out.emplace_back([&log, i, failing]() -> Result<std::unique_ptr<PreparedChange>> {
      if (i == failing) return invalid("build " + std::to_string(i));
      return std::unique_ptr<PreparedChange>(std::make_unique<Change>(log, i));
    });
  }
  return out;
}

TEST(StateChanges, CommitAllAndReleaseTheOldOnes_EXE_52) {
  std::vector<std::string> log;
  std::vector<Builder> list = builders(log, 3, -1);

  EXPECT_TRUE(apply_state_changes(std::span(list)));

  EXPECT_THAT(log, ElementsAre("old 0", "old 1", "old 2"));
}

TEST(StateChanges, AFailingBuilderReleasesWhatWasBuilt_EXE_52) {
  for (int failing = 0; failing < 3; ++failing) {
    std::vector<std::string> log;
    std::vector<Builder> list = builders(log, 3, failing);

    const Status applied = apply_state_changes(std::span(list));

    ASSERT_FALSE(applied);
    EXPECT_EQ(applied.error().what, "build " + std::to_string(failing));
    ASSERT_EQ(log.size(), static_cast<std::size_t>(failing));
    for (const std::string& line : log) EXPECT_EQ(line.substr(0, 3), "new");
  }
}

struct Handle {
  Handle(int* closed_, bool fails_) : closed(closed_), fails(fails_) {}
  Handle(Handle&&) = default;
  Handle& operator=(Handle&&) = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  Status close() {
    ++*closed;
    return fails ? Status(io_error("close")) : Status();
  }
  int* closed;
  bool fails;
};

TEST(Resources, AreClosedOnFailureAndTheFirstErrorStays_EXE_50) {
  int closed = 0;
  std::vector<Error> also;
  const auto use = [](Handle&) -> Result<int> { return invalid("use"); };

  const Result<int> result = with_resource(Handle(&closed, true), use, also);

  EXPECT_EQ(result.error().what, "use");
  EXPECT_EQ(closed, 1);
  ASSERT_EQ(also.size(), 1u);
  EXPECT_EQ(also[0].what, "close");
}

TEST(Resources, StayOpenOnSuccess_EXE_50) {
  int closed = 0;
  std::vector<Error> also;

  const Result<int> result = with_resource(
      Handle(&closed, true), [](Handle&) -> Result<int> { return 7; }, also);

  EXPECT_EQ(*result, 7);
  EXPECT_EQ(closed, 0);
  EXPECT_THAT(also, IsEmpty());
}

TEST(Resources, AListIsClosedPastFailures_EXE_50) {
  int closed = 0;
  std::vector<Handle> handles;
  for (int i = 0; i < 3; ++i) handles.emplace_back(&closed, i != 1);

  EXPECT_EQ(close_all(std::span(handles)).size(), 2u);

  EXPECT_EQ(closed, 3);
  const CleanupReport report =
      cleanup_failure(invalid("run"), [] { return Status(io_error("graph")); });
  EXPECT_EQ(report.primary.what, "run");
  EXPECT_EQ(report.also.at(0).what, "graph");
}

// SPEC-12, SPEC-13: every path of the walk. Drafts are {5, 6}, EOS is 9.
struct Walk {
  std::vector<TokenId> drafts{5, 6};
  std::vector<TokenId> eos{9};
  DraftAcceptance acceptance;
  Walk& run(std::uint64_t remaining, std::vector<TokenId> samples, int grammar_ends_at = -1) {
    acceptance.begin(drafts, remaining, eos);
    for (std::size_t i = 0; i < samples.size() && !acceptance.done(); ++i)
      acceptance.accept(samples[i], static_cast<int>(i) == grammar_ends_at);
    return *this;
  }
};

TEST(DraftAcceptance, AllMatchThenBonus) {
  Walk w;
  const DraftAcceptance& a = w.run(10, {5, 6, 7}).acceptance;
  EXPECT_THAT(a.emitted(), ElementsAre(5, 6, 7));
  EXPECT_EQ(a.accepted(), 2u);
  EXPECT_EQ(a.correction(), 7u);
  EXPECT_TRUE(a.done());
}

TEST(DraftAcceptance, MismatchEndsTheWalk) {
  Walk w;
  const DraftAcceptance& a = w.run(10, {4, 6, 7}).acceptance;
  EXPECT_THAT(a.emitted(), ElementsAre(4));
  EXPECT_EQ(a.accepted(), 0u);
  EXPECT_EQ(a.position(), 1u);
}

TEST(DraftAcceptance, MatchedEosIsKeptAndNotEmitted) {
  Walk w;
  w.drafts = {5, 9};
  const DraftAcceptance& a = w.run(10, {5, 9}, 1).acceptance;
  EXPECT_THAT(a.emitted(), ElementsAre(5));
  EXPECT_EQ(a.accepted(), 2u);
  EXPECT_TRUE(a.saw_eos());
  EXPECT_FALSE(a.grammar_done());
  EXPECT_FALSE(a.correction());
}

TEST(DraftAcceptance, EosAsCorrectionIsNotEmitted) {
  Walk w;
  const DraftAcceptance& a = w.run(10, {5, 9}).acceptance;
  EXPECT_THAT(a.emitted(), ElementsAre(5));
  EXPECT_EQ(a.accepted(), 1u);
  EXPECT_TRUE(a.saw_eos());
  EXPECT_EQ(a.correction(), 9u);
}

TEST(DraftAcceptance, MatchesThatUseUpTheBudgetLeaveNoCorrection) {
  Walk w;
  const DraftAcceptance& a = w.run(2, {5, 6, 7}).acceptance;
  EXPECT_THAT(a.emitted(), ElementsAre(5, 6));
  EXPECT_FALSE(a.correction());
  EXPECT_TRUE(a.done());
}

TEST(DraftAcceptance, ACorrectionMayBeTheLastBudgetedToken) {
  Walk w;
  EXPECT_THAT(w.run(2, {5, 4}).acceptance.emitted(), ElementsAre(5, 4));
}

TEST(DraftAcceptance, AGrammarEndStopsTheWalk) {
  Walk w;
  const DraftAcceptance& a = w.run(10, {5, 6, 7}, 0).acceptance;
  EXPECT_THAT(a.emitted(), ElementsAre(5));
  EXPECT_TRUE(a.grammar_done());
  EXPECT_EQ(a.accepted(), 1u);
}

TEST(DraftAcceptance, WithoutDraftsTheFirstTokenIsTheBonus) {
  Walk w;
  w.drafts = {};
  const DraftAcceptance& a = w.run(1, {3}).acceptance;
  EXPECT_THAT(a.emitted(), ElementsAre(3));
  EXPECT_EQ(a.accepted(), 0u);
  EXPECT_EQ(a.correction(), 3u);
}

}  // namespace
}  // namespace kvasir
