#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <random>
#include <set>

#include "engine/detail/scripted.h"

namespace kvasir::engine {
namespace {

using namespace scripted;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A prompt whose greedy run has at least n tokens before EOS.
std::vector<TokenId> long_prompt(std::size_t n_prompt, std::size_t n_tokens) {
  for (std::uint64_t seed = 1;; ++seed) {
    std::vector<TokenId> prompt = prompt_of(n_prompt, seed);
    if (naive_run(greedy(prompt, 0), n_tokens, 0).tokens.size() == n_tokens) return prompt;
  }
}

// A prompt whose greedy run is exactly n tokens, then EOS.
std::vector<TokenId> ending_prompt(std::size_t n_prompt, std::size_t n_tokens) {
  for (std::uint64_t seed = 1;; ++seed) {
    std::vector<TokenId> prompt = prompt_of(n_prompt, seed);
    const NaiveRun run = naive_run(greedy(prompt, 0), n_tokens + 1, 0);
    if (run.tokens.size() == n_tokens && run.reason == FinishReason::stop) return prompt;
  }
}

TEST(Engine, RunsARequestFromOptionsToOutcome) {
  Rig rig;
  std::vector<std::string> trace;
  Record record;
  record.trace = rig.executor.trace = &trace;
  record.name = "a";
  const std::vector<TokenId> prompt = long_prompt(20, 3);
  const NaiveRun expected = naive_run(greedy(prompt, 0), 3, 0);

  ASSERT_TRUE(rig.engine->submit(greedy(prompt, 3), rig.sink(record)));
  EXPECT_EQ(rig.run(), 3);

  EXPECT_EQ(record.tokens, expected.tokens);
  const auto commit = [&](std::size_t i) {
    return "commit a " + std::to_string(expected.tokens[i]);
  };
  EXPECT_THAT(trace, ElementsAre("forward 20", commit(0), "forward 1", commit(1), "forward 1",
                                 commit(2), "finish a"));
  const Outcome& outcome = record.outcome();
  ASSERT_TRUE(outcome.completed());
  EXPECT_EQ(outcome.completed()->reason, FinishReason::length);
  EXPECT_EQ(outcome.stats.prompt_tokens, 20u);
  EXPECT_EQ(outcome.stats.generated_tokens, 3u);
  EXPECT_EQ(outcome.stats.cache_tokens, 22u) << "EXE-9: the last token is not in the state";
  EXPECT_EQ(outcome.stats.steps, 3u);
  EXPECT_THAT(rig.executor.wanted_sizes, ElementsAre(1, 1, 1)) << "EXE-36";
}

TEST(Engine, ZeroMaxTokensRunsThePromptAndEmitsNothing_EXE_1) {
  Rig rig;
  Record record;
  ASSERT_TRUE(rig.engine->submit(greedy(prompt_of(10, 1), 0), rig.sink(record)));
  EXPECT_EQ(rig.run(), 1);
  EXPECT_THAT(record.tokens, IsEmpty());
  EXPECT_EQ(record.outcome().completed()->reason, FinishReason::length);
  EXPECT_EQ(record.outcome().stats.cache_tokens, 10u);
  EXPECT_THAT(rig.executor.wanted_sizes, ElementsAre(0));
}

TEST(Engine, RefusesBadOptions_EXE_1) {
  EngineOptions options;
  options.context_length = 512;
  Rig rig(options);
  const auto error = [&](GenerateOptions o) {
    Record record;
    const Result<RequestId> id = rig.engine->submit(std::move(o), rig.sink(record));
    return id ? std::string("accepted") : id.error().what;
  };
  EXPECT_EQ(error(greedy({}, 1)), "prompt must not be empty");
  EXPECT_EQ(error(greedy({kVocab}, 1)), "prompt token id 64 is out of range");
  GenerateOptions o = greedy({1}, 1);
  o.prefill_chunk = 0;
  EXPECT_EQ(error(o), "invalid prefill position or chunk size");
  o = greedy({1}, 1);
  o.snapshot_at = {2};
  EXPECT_EQ(error(o), "invalid prefill snapshot boundary");
  o = greedy({1}, 1);
  o.sampling.top_logprobs = 21;
  EXPECT_NE(error(o), "accepted");
  o = greedy({1}, 1);
  o.sampling.logit_bias = {{kVocab, 1.0f}};
  EXPECT_EQ(error(o), "logit_bias token id 64 is out of range");
  EXPECT_EQ(error(greedy(prompt_of(513, 1), 1)),
            "prompt of 513 tokens exceeds the context of 512");  // FIT-21, C36
  EXPECT_THAT(error(greedy(prompt_of(500, 1), 100)),
              HasSubstr("prompt of 500 tokens + max_tokens 100 needs a context of 600; this server "
                        "can hold 512 ("));
  EXPECT_FALSE(rig.engine->has_requests());

  Record record;
  o = greedy(prompt_of(500, 1), 0);
  o.max_tokens.reset();  // a default is lowered to fit (FIT-20)
  ASSERT_TRUE(rig.engine->submit(o, rig.sink(record)));
  rig.run();
  EXPECT_LE(record.tokens.size(), 12u);
}

TEST(Engine, EosOnTheLastBudgetedTokenIsStop_EXE_4) {
  Rig rig;
  Record record;
  ASSERT_TRUE(rig.engine->submit(greedy(ending_prompt(9, 2), 3), rig.sink(record)));
  rig.run();
  EXPECT_EQ(record.tokens.size(), 2u) << "EOS is never emitted (EXE-5)";
  EXPECT_EQ(record.outcome().completed()->reason, FinishReason::stop);
  EXPECT_EQ(record.outcome().stats.cache_tokens, 11u);
}

TEST(Engine, AnImmediateEosEmitsNothing) {
  Rig rig;
  Record record;
  ASSERT_TRUE(rig.engine->submit(greedy(ending_prompt(9, 0), 3), rig.sink(record)));
  EXPECT_EQ(rig.run(), 1);
  EXPECT_THAT(record.tokens, IsEmpty());
  EXPECT_EQ(record.outcome().completed()->reason, FinishReason::stop);
}

TEST(Engine, TheSinkStopsOrFailsItsRowAtThatToken_EXE_6) {
  const std::vector<TokenId> prompt = long_prompt(12, 6);
  const NaiveRun expected = naive_run(greedy(prompt, 0), 6, 0);
  for (const bool fails : {false, true}) {
    for (const std::size_t at : {0, 1, 4}) {
      Rig rig;
      Record record, other;
      (fails ? record.fails_at : record.stops_at) = at;
      ASSERT_TRUE(rig.engine->submit(greedy(prompt, 6), rig.sink(record)));
      ASSERT_TRUE(rig.engine->submit(greedy(prompt, 6), rig.sink(other)));
      rig.run();

      EXPECT_EQ(record.tokens.size(), at + 1);
      EXPECT_EQ(record.outcome().stats.generated_tokens, at + 1);
      if (fails) {
        ASSERT_TRUE(record.outcome().failed());
        EXPECT_EQ(record.outcome().failed()->code, "sink_failed");
      } else {
        EXPECT_EQ(record.outcome().completed()->reason, FinishReason::stop);
        EXPECT_EQ(record.outcome().stats.cache_tokens, 12 + at);
      }
      EXPECT_EQ(other.tokens, expected.tokens) << "its neighbour goes on";
    }
  }
}

TEST(Engine, CancellationIsSeenBeforeTheNextToken_SCH_36) {
  Rig rig;
  Record record;
  const std::vector<TokenId> prompt = long_prompt(12, 6);
  const RequestId id = *rig.engine->submit(greedy(prompt, 6), rig.sink(record));
  record.on_token = [&](std::size_t index) {
    if (index == 2) rig.engine->cancel(id, CancelReason::consumer_closed);
  };
  EXPECT_EQ(rig.run(), 3);
  EXPECT_EQ(record.tokens.size(), 3u);
  ASSERT_TRUE(record.outcome().cancelled());
  EXPECT_EQ(record.outcome().cancelled()->reason, CancelReason::consumer_closed);
  EXPECT_EQ(rig.engine->store().used_bytes(), rig.engine->cache()->stats().bytes)
      << "only the prompt stays, cached";
}

TEST(Engine, ATokenAndADeadlineCancelWaitersAndRowsAlike) {
  EngineOptions options;
  options.max_rows = 1;
  Rig rig(options);
  Record running, waiting;
  CancellationSource source;
  GenerateOptions first = greedy(long_prompt(12, 50), 50);
  first.cancellation = source.token();
  GenerateOptions second = greedy({1, 2}, 5);
  second.deadline = std::chrono::seconds(5);
  ASSERT_TRUE(rig.engine->submit(first, rig.sink(running)));
  ASSERT_TRUE(rig.engine->submit(second, rig.sink(waiting)));
  EXPECT_EQ(rig.engine->step().wake_at, std::chrono::seconds(5));

  rig.clock.advance(std::chrono::seconds(6));
  source.cancel(CancelReason::requested);
  rig.engine->step();

  EXPECT_EQ(running.outcome().cancelled()->reason, CancelReason::requested);
  EXPECT_EQ(waiting.outcome().cancelled()->reason, CancelReason::deadline);
  EXPECT_FALSE(rig.engine->has_requests());
}

TEST(Engine, NonFiniteLogitsFailTheirRowOnly_EXE_25) {
  Rig rig;
  std::vector<TokenId> good = long_prompt(12, 4);
  std::vector<TokenId> bad = good;
  bad[0] = good[0] == 5 ? 6 : 5;
  rig.executor.nan_token = bad[0];
  Record a, b;
  ASSERT_TRUE(rig.engine->submit(greedy(bad, 4), rig.sink(b)));
  ASSERT_TRUE(rig.engine->submit(greedy(good, 4), rig.sink(a)));
  rig.run();
  EXPECT_EQ(b.outcome().failed()->code, "numeric_error");
  EXPECT_THAT(b.tokens, IsEmpty());
  EXPECT_EQ(a.tokens, naive_run(greedy(good, 0), 4, 0).tokens);
}

TEST(Engine, ARunFailureEndsTheRowsOfThatStepAndChangesNothing_SCH_34) {
  EngineOptions options;
  options.max_rows = 2;
  for (std::uint32_t k = 0; k < 5; ++k) {
    Rig rig(options, 4096, /*has_cache=*/false);
    rig.executor.fails_at = k;
    Record a, b, waiter;
    const KvRowId state = rig.engine->create_state();
    GenerateOptions mine = greedy(long_prompt(12, 9), 9);
    mine.state = state;  // survives its request, so the books can be compared
    ASSERT_TRUE(rig.engine->submit(mine, rig.sink(a)));
    for (std::uint32_t i = 0; i < k; ++i) rig.engine->step();
    const kv::KvSnapshot before = rig.engine->store().snapshot();
    if (k == 3) {
      ASSERT_TRUE(rig.engine->submit(greedy(long_prompt(9, 3), 3), rig.sink(b)));
      ASSERT_TRUE(rig.engine->submit(greedy(long_prompt(8, 3), 3), rig.sink(waiter)));
    }

    const StepReport report = rig.engine->step();

    ASSERT_TRUE(report.failure);
    EXPECT_EQ(a.outcome().failed()->code, "engine_failed");
    EXPECT_EQ(a.outcome().failed()->message, "kernel failed");
    EXPECT_EQ(a.outcome().stats.cache_tokens, k == 0 ? 0 : 12 + k - 1);
    EXPECT_TRUE(rig.engine->store().snapshot() == before) << "step " << k;
    if (k != 3) continue;
    EXPECT_TRUE(b.outcome().failed());
    EXPECT_FALSE(waiter.is_over()) << "waiters stay";
    rig.run();
    EXPECT_EQ(waiter.tokens.size(), 3u);
  }
}

// EXE-20: {owned, caller} × {clean, failed, cancelled} × {first token, later}; cache_tokens each
// time.
TEST(Engine, FeedsTheTokenThatACallersStateIsOwed_EXE_20) {
  const std::vector<TokenId> prompt = long_prompt(12, 6);
  enum class How { clean, failed, cancelled };
  for (const bool is_caller : {false, true}) {
    for (const How how : {How::clean, How::failed, How::cancelled}) {
      for (const std::size_t at : {0u, 2u}) {
        Rig rig;
        Record record;
        GenerateOptions options = greedy(prompt, 6);
        if (is_caller) options.state = rig.engine->create_state();
        if (how == How::failed) record.fails_at = at;
        if (how != How::failed) record.stops_at = at;
        const RequestId id = *rig.engine->submit(options, rig.sink(record));
        record.on_token = [&](std::size_t index) {
          if (how == How::cancelled && index == at) rig.engine->cancel(id, CancelReason::requested);
        };
        const int n_steps = rig.run();

        const bool is_owed = is_caller && how == How::clean && at == 0;
        EXPECT_EQ(n_steps, static_cast<int>(at + 1 + (is_owed ? 1 : 0)));
        const Outcome& outcome = record.outcome();
        EXPECT_EQ(outcome.failed() != nullptr, how == How::failed);
        EXPECT_EQ(record.tokens.size(), at + 1) << "never delivered twice (EXE-8)";
        // A failed row keeps what the steps before had committed.
        const std::size_t kept =
            how == How::failed ? (at == 0 ? 0 : 12 + at - 1) : 12 + at + (is_owed ? 1 : 0);
        EXPECT_EQ(outcome.stats.cache_tokens, kept);
        EXPECT_EQ(outcome.forwarded.size(), kept > 12 ? kept - 12 : 0);
        if (!is_caller) continue;
        EXPECT_EQ(rig.engine->state_length(*options.state), kept);
        EXPECT_TRUE(rig.engine->free_state(*options.state));
        EXPECT_EQ(rig.engine->check_invariants(), "");
      }
    }
  }
}

TEST(Engine, AFailedCompletionIsTheExecutionError_EXE_20) {
  Rig rig;
  Record record;
  record.stops_at = 0;
  GenerateOptions options = greedy(long_prompt(12, 6), 6);
  options.state = rig.engine->create_state();
  rig.executor.fails_at = 1;
  ASSERT_TRUE(rig.engine->submit(options, rig.sink(record)));
  rig.run();
  ASSERT_TRUE(record.outcome().failed());
  EXPECT_EQ(record.outcome().failed()->message, "kernel failed");
  EXPECT_EQ(record.outcome().stats.cache_tokens, 12u);
}

TEST(Engine, GoesOnFromACallersState) {
  Rig rig;
  const KvRowId state = rig.engine->create_state();
  Record first, second, third;
  std::vector<TokenId> prompt = long_prompt(12, 6);
  GenerateOptions options = greedy(prompt, 4);
  options.state = state;
  ASSERT_TRUE(rig.engine->submit(options, rig.sink(first)));
  EXPECT_EQ(rig.engine->submit(options, rig.sink(second)).error().what,
            "state is unknown or in use");
  rig.run();
  ASSERT_EQ(rig.engine->state_length(state), 15u);

  options.prompt.insert(options.prompt.end(), first.tokens.begin(), first.tokens.end());
  options.max_tokens = 2;
  ASSERT_TRUE(rig.engine->submit(options, rig.sink(third)));
  rig.run();

  EXPECT_EQ(third.outcome().stats.cached_tokens, 15u);
  std::vector<TokenId> all = first.tokens;
  all.insert(all.end(), third.tokens.begin(), third.tokens.end());
  EXPECT_EQ(all, naive_run(greedy(prompt, 0), 6, 0).tokens);
}

TEST(Engine, AnOversizePromptRunsAloneInChunks_SCH_5) {
  Rig rig;
  Record big, small;
  GenerateOptions options = greedy(prompt_of(2000, 3), 1);
  options.prefill_chunk = 300;
  options.snapshot_at = {1000, 450};
  ASSERT_TRUE(rig.engine->submit(options, rig.sink(big)));
  rig.run();
  EXPECT_THAT(rig.executor.step_sizes, ElementsAre(300, 150, 300, 250, 300, 300, 300, 100));
  EXPECT_EQ(big.tokens, naive_run(options, 1, 0).tokens);
}

TEST(Engine, ACohortOfShortPromptsSharesStepsAndTheNinthWaits_SCH_4) {
  EngineOptions options;
  options.max_rows = 16;
  Rig rig(options);
  std::vector<Record> records(11);
  for (std::size_t i = 0; i < records.size(); ++i)
    ASSERT_TRUE(rig.engine->submit(greedy(long_prompt(50, 2 + i % 2), 2), rig.sink(records[i])));

  EXPECT_EQ(rig.engine->step().n_admitted, 10u) << "10 × 50 ≤ 512 < 11 × 50";
  const StepReport second = rig.engine->step();

  EXPECT_EQ(second.n_admitted, 1u);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_TRUE(records[i].is_over());
}

TEST(Engine, NothingPassesTheHeadOfTheQueue_SCH_1) {
  Rig rig({}, 200);
  Record running, head, follower;
  const std::uint64_t context = rig.engine->context_limit().context();
  ASSERT_GT(context, 400u);
  ASSERT_TRUE(rig.engine->submit(greedy(long_prompt(40, 20), 20), rig.sink(running)));
  rig.engine->step();
  ASSERT_TRUE(rig.engine->submit(greedy(prompt_of(context - 1, 2), 1), rig.sink(head)));
  ASSERT_TRUE(rig.engine->submit(greedy({1, 2}, 1), rig.sink(follower)));

  for (int i = 0; i < 10; ++i) EXPECT_EQ(rig.engine->step().n_admitted, 0u);
  EXPECT_FALSE(follower.is_over());
  rig.run();

  EXPECT_TRUE(running.outcome().completed());
  EXPECT_TRUE(head.outcome().completed());
  EXPECT_TRUE(follower.outcome().completed());
}

TEST(Engine, TheQueueIsBounded_SCH_1) {
  EngineOptions options;
  options.queue_limit = 2;
  Rig rig(options);
  Record a, b, c;
  ASSERT_TRUE(rig.engine->submit(greedy({1}, 1), rig.sink(a)));
  ASSERT_TRUE(rig.engine->submit(greedy({1}, 1), rig.sink(b)));
  const Result<RequestId> refused = rig.engine->submit(greedy({1}, 1), rig.sink(c));
  EXPECT_EQ(refused.error().what, "queue_full");
  EXPECT_EQ(refused.error().code, Errc::capacity);
}

TEST(Engine, HoldStopsAdmissionAndCloseEndsWaiters_SCH_30) {
  Rig rig;
  Record a, b;
  rig.engine->hold();
  rig.engine->hold();
  ASSERT_TRUE(rig.engine->submit(greedy({1}, 1), rig.sink(a)));
  EXPECT_TRUE(rig.engine->step().is_idle);
  rig.engine->release_hold();
  EXPECT_TRUE(rig.engine->step().is_idle);
  rig.engine->release_hold();
  rig.run();
  EXPECT_TRUE(a.outcome().completed());

  rig.engine->hold();
  ASSERT_TRUE(rig.engine->submit(greedy({1}, 1), rig.sink(b)));
  rig.engine->close();
  rig.engine->step();
  EXPECT_EQ(b.outcome().cancelled()->reason, CancelReason::engine_closed);
  EXPECT_EQ(rig.engine->submit(greedy({1}, 1), rig.sink(b)).error().code, Errc::cancelled);
}

TEST(Engine, APausedSinkIsNotFedAndOthersGoOn_SCH_43) {
  Rig rig;
  Record slow, fast;
  ASSERT_TRUE(rig.engine->submit(greedy(long_prompt(12, 6), 6), rig.sink(slow)));
  ASSERT_TRUE(rig.engine->submit(greedy(long_prompt(13, 6), 6), rig.sink(fast)));
  slow.on_token = [&](std::size_t) { slow.is_paused = true; };
  rig.run();
  EXPECT_EQ(slow.tokens.size(), 1u);
  EXPECT_TRUE(fast.is_over());
  slow.on_token = nullptr;
  slow.is_paused = false;
  rig.run();
  EXPECT_EQ(slow.tokens.size(), 6u);
}

TEST(Engine, ColdWarmAndUncachedRunsAreEqual_C18) {
  for (const std::size_t n : {1u, 5u, 8u, 16u, 24u, 40u}) {
    Rig rig;
    std::vector<Record> records(4);
    GenerateOptions options = greedy(prompt_of(n, n), 16);
    options.sampling.temperature = 1;
    options.sampling.seed = 7;
    for (std::size_t i = 0; i < records.size(); ++i) {
      options.prompt_cache = i != 2;
      ASSERT_TRUE(rig.engine->submit(options, rig.sink(records[i])));
      rig.run();
      EXPECT_EQ(records[i].tokens, naive_run(options, 16, 7).tokens);
      EXPECT_EQ(records[i].outcome().stats.cached_tokens, i == 0 || i == 2 ? 0 : n - 1);
    }
  }
}

TEST(Engine, KeepsASnapshotAtTheAskedPosition_CACHE_13) {
  Rig rig;
  Record first, second;
  GenerateOptions options = greedy(prompt_of(100, 1), 30);
  options.sampling.ignore_eos = true;
  options.snapshot_at = {70};
  ASSERT_TRUE(rig.engine->submit(options, rig.sink(first)));
  rig.run();
  std::vector<TokenId> other = prompt_of(100, 1);
  other.resize(70);
  const std::vector<TokenId> tail = prompt_of(30, 99);
  other.insert(other.end(), tail.begin(), tail.end());
  ASSERT_TRUE(rig.engine->submit(greedy(other, 4), rig.sink(second)));
  rig.run();
  EXPECT_EQ(second.outcome().stats.cached_tokens, 70u) << "windowed layers resume there only";
  EXPECT_EQ(second.tokens, naive_run(greedy(other, 0), 4, 0).tokens);
}

TEST(Engine, ChoicesShareThePromptAndDrawTheirOwnTokens_SAMP_22) {
  Rig rig;
  std::vector<Record> records(4);
  std::vector<std::unique_ptr<Sink>> sinks;
  for (Record& record : records) sinks.push_back(rig.sink(record));
  GenerateOptions options = greedy(prompt_of(100, 4), 8);
  options.sampling.temperature = 1;
  options.sampling.seed = 40;
  ASSERT_TRUE(rig.engine->submit_choices(options, std::move(sinks)));
  rig.run();
  EXPECT_EQ(rig.executor.step_sizes[0], 100u);
  std::size_t n_fed = 0;
  for (const std::size_t n : rig.executor.step_sizes) n_fed += n;
  EXPECT_LE(n_fed, 100u + 4 * 7) << "the prompt is computed once";
  for (std::size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i].tokens, naive_run(options, 8, 40 + i).tokens);
    EXPECT_EQ(records[i].outcome().seed, 40 + i);
  }
}

TEST(Engine, AChoiceInheritsThePromptOfOneThatLeaves) {
  for (const std::size_t n_rows : {2u, 8u}) {
    EngineOptions engine_options;
    engine_options.max_rows = static_cast<std::uint32_t>(n_rows);
    Rig rig(engine_options);
    std::vector<Record> records(3);
    std::vector<std::unique_ptr<Sink>> sinks;
    for (Record& record : records) sinks.push_back(rig.sink(record));
    GenerateOptions options = greedy(prompt_of(900, 4), 4);
    options.sampling.seed = 40;
    options.sampling.temperature = 1;
    const auto ids = *rig.engine->submit_choices(options, std::move(sinks));
    rig.engine->step();
    rig.engine->cancel(ids[0], CancelReason::requested);
    rig.run();
    EXPECT_TRUE(records[0].outcome().cancelled());
    for (std::size_t i = 1; i < 3; ++i)
      EXPECT_EQ(records[i].tokens, naive_run(options, 4, 40 + i).tokens);
    EXPECT_THAT(rig.executor.step_sizes[0] + rig.executor.step_sizes[1], 900u);
  }
}

TEST(Engine, AChoiceGoesOnWhenTheFirstEndsAtItsFirstToken) {
  for (const bool fails : {false, true}) {
    Rig rig;
    std::vector<Record> records(3);
    (fails ? records[0].fails_at : records[0].stops_at) = 0;
    std::vector<std::unique_ptr<Sink>> sinks;
    for (Record& record : records) sinks.push_back(rig.sink(record));
    ASSERT_TRUE(rig.engine->submit_choices(greedy(long_prompt(30, 5), 5), std::move(sinks)));
    rig.run();
    EXPECT_EQ(records[0].tokens.size(), 1u);
    for (std::size_t i = 1; i < 3; ++i) EXPECT_EQ(records[i].tokens.size(), 5u);
  }
}

TEST(Engine, UnseededRequestsHaveDistinctSeeds_SAMP_22) {
  Rig rig;
  std::set<std::uint64_t> seeds;
  for (int i = 0; i < 50; ++i) {
    Record record;
    ASSERT_TRUE(rig.engine->submit(greedy({1}, 1), rig.sink(record)));
    rig.run();
    seeds.insert(record.outcome().seed);
  }
  EXPECT_EQ(seeds.size(), 50u);
}

TEST(Engine, ReportsPromptLogprobsOnce_SAMP_32) {
  Rig rig;
  std::vector<Record> records(3);
  std::vector<std::unique_ptr<Sink>> sinks;
  for (Record& record : records) sinks.push_back(rig.sink(record));
  GenerateOptions options = greedy(prompt_of(75, 2), 0);
  options.prompt_logprobs = 2;
  ASSERT_TRUE(rig.engine->submit_choices(options, std::move(sinks)));
  EXPECT_EQ(rig.run(), 3);
  for (const Record& record : records) {
    ASSERT_EQ(record.prompt_logprobs.size(), 74u);
    EXPECT_EQ(record.prompt_logprobs[0].top.size(), 2u);
    EXPECT_TRUE(record.outcome().completed());
  }
}

TEST(Engine, LogprobsTravelWithTheirTokens_EXE_7) {
  Rig rig;
  Record record;
  GenerateOptions options = greedy(long_prompt(9, 4), 4);
  options.sampling.logprobs = true;
  options.sampling.top_logprobs = 3;
  ASSERT_TRUE(rig.engine->submit(options, rig.sink(record)));
  rig.run();
  ASSERT_EQ(record.logprobs.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(record.logprobs[i].top.at(0).token, record.tokens[i]);
}

// Drafts that are right with a given chance; wrong ones must not show (SPEC §1).
struct GuessProvider final : DraftProvider {
  GuessProvider(std::vector<TokenId> truth_, unsigned percent_)
      : truth(std::move(truth_)), percent(percent_) {}
  struct Source final : DraftSource {
    explicit Source(GuessProvider& p) : provider(p) {}
    Status propose(const DraftAsk& ask, std::vector<TokenId>& drafts) override {
      for (std::uint64_t i = 0; i < ask.n_max && ask.position + i < provider.truth.size(); ++i) {
        const bool is_right = provider.random() % 100 < provider.percent;
        drafts.push_back(is_right ? provider.truth[ask.position + i]
                                  : static_cast<TokenId>(provider.random() % kVocab));
      }
      return {};
    }
    Status accept(std::span<const TokenId> committed, std::span<const float>) override {
      seen.insert(seen.end(), committed.begin(), committed.end());
      provider.n_wrong += !std::equal(seen.begin(), seen.end(), provider.truth.begin());
      return {};
    }
    void forget() noexcept override {}
    GuessProvider& provider;
    std::vector<TokenId> seen;
  };
  std::string_view kind() const noexcept override { return "guess"; }
  std::size_t weight_bytes() const noexcept override { return 0; }
  std::uint32_t max_drafts() const noexcept override { return 8; }
  DraftPriming priming() const noexcept override { return DraftPriming::full; }
  std::span<const std::uint32_t> tap_layers() const noexcept override { return {}; }
  bool primes_from_prefix() const noexcept override { return true; }
  Result<std::unique_ptr<DraftSource>> open() override {
    return std::unique_ptr<DraftSource>(new Source(*this));
  }
  std::vector<TokenId> truth;
  unsigned percent;
  std::mt19937 random{5};
  int n_wrong = 0;
};

TEST(Engine, DraftsChangeTheNumberOfStepsOnly_SPEC_31) {
  for (const unsigned percent : {0u, 60u, 100u}) {
    for (const std::uint32_t max_tokens : {1u, 2u, 7u, 40u}) {
      Rig rig;
      Record record, neighbour;
      GenerateOptions options = greedy(prompt_of(20, 8), max_tokens);
      options.sampling.temperature = 1;
      options.sampling.seed = 3;
      options.sampling.repetition_penalty = 1.3f;
      options.sampling.logprobs = true;
      const NaiveRun expected = naive_run(options, max_tokens, 3);
      std::vector<TokenId> truth = options.prompt;
      truth.insert(truth.end(), expected.tokens.begin(), expected.tokens.end());
      if (expected.reason == FinishReason::stop) truth.push_back(kEos);
      GuessProvider provider(truth, percent);
      options.draft = &provider;
      options.n_draft_tokens = 5;
      ASSERT_TRUE(rig.engine->submit(options, rig.sink(record)));
      ASSERT_TRUE(rig.engine->submit(greedy(long_prompt(9, 5), 5), rig.sink(neighbour)));
      rig.run();

      EXPECT_EQ(record.tokens, expected.tokens);
      EXPECT_EQ(record.logprobs.size(), expected.tokens.size());
      EXPECT_EQ(record.outcome().completed()->reason, expected.reason);
      EXPECT_EQ(neighbour.tokens.size(), 5u);
      EXPECT_EQ(provider.n_wrong, 0) << "a source sees committed tokens only";
      if (percent == 100) {
        EXPECT_LE(record.outcome().stats.steps, 2 + expected.tokens.size() / 6);
      }
    }
  }
}

// Allows tokens below a limit, and ends after n of them.
struct Below final : TokenConstraint {
  explicit Below(TokenId limit, std::size_t n_) : n(n_) {
    for (TokenId t = 1; t < limit; ++t) words[t / 32] |= 1u << (t % 32);
  }
  std::unique_ptr<TokenConstraint> clone() const override { return std::make_unique<Below>(*this); }
  Result<std::span<const std::uint32_t>> mask() override {
    return std::span<const std::uint32_t>(words);
  }
  std::span<const TokenId> forced() override { return {}; }
  Result<bool> advance(TokenId) override { return ++n_advanced == n; }
  std::size_t snapshot() const noexcept override { return n_advanced; }
  void restore(std::size_t mark) noexcept override { n_advanced = mark; }
  std::array<std::uint32_t, 2> words{};
  std::size_t n, n_advanced = 0;
};

TEST(Engine, AConstraintMasksAndEndsTheRow) {
  Rig rig;
  Record record;
  GenerateOptions options = greedy(prompt_of(9, 1), 50);
  options.constraint = std::make_shared<Below>(8, 5);
  ASSERT_TRUE(rig.engine->submit(options, rig.sink(record)));
  rig.run();
  ASSERT_EQ(record.tokens.size(), 5u);
  for (const TokenId token : record.tokens) EXPECT_LT(token, 8u);
  EXPECT_EQ(record.outcome().completed()->reason, FinishReason::stop);
}

TEST(Engine, RowsThatTogetherExceedTheBudgetWait_SCH_20) {
  // 3 groups of layers, 8 tokens a block: a row of 80 tokens needs at most 30 blocks and 3 spare.
  EngineOptions options;
  options.max_step_tokens = 256;
  Rig rig(options, 80);
  std::vector<Record> records(5);
  for (std::size_t i = 0; i < records.size(); ++i) {
    GenerateOptions o = greedy(prompt_of(40, i), 40);
    o.sampling.ignore_eos = true;
    ASSERT_TRUE(rig.engine->submit(o, rig.sink(records[i])));
  }
  EXPECT_EQ(rig.engine->step().n_admitted, 2u);
  rig.run();
  for (const Record& record : records) EXPECT_EQ(record.tokens.size(), 40u);
  EXPECT_EQ(rig.engine->snapshot().deferrals, 0u);
}

TEST(Engine, ARowThatFillsTheWholeStoreRuns_SCH_22) {
  Rig rig({}, 60);
  const std::uint64_t context = rig.engine->context_limit().context();
  for (int round = 0; round < 3; ++round) {
    Record record;
    GenerateOptions options = greedy(prompt_of(30, 1), static_cast<std::uint32_t>(context - 30));
    options.sampling.ignore_eos = true;
    ASSERT_TRUE(rig.engine->submit(options, rig.sink(record)));
    rig.run();
    EXPECT_EQ(record.tokens.size(), context - 30);
  }
}

// SCH-17: batched tokens equal each request's own, for random mixes, chunks, block sizes and
// schemes of sharing.
TEST(Engine, BatchedTokensEqualTokensAlone_SCH_17) {
  std::mt19937 engine(17);
  const auto random = [&] { return static_cast<std::uint32_t>(engine()); };
  for (int round = 0; round < 30; ++round) {
    EngineOptions options;
    options.max_rows = 1 + random() % 8;
    options.max_step_tokens = options.max_rows + 128 + random() % 200;
    Rig rig(options, 600 + random() % 2000, random() % 2 == 0, 8u << (random() % 3));
    const std::size_t n = 1 + random() % 12;
    std::vector<Record> records(n);
    std::vector<GenerateOptions> all;
    for (std::size_t i = 0; i < n; ++i) {
      GenerateOptions o = greedy(prompt_of(1 + random() % 120, random() % 3), random() % 20);
      o.prefill_chunk = 1 + random() % 64;
      o.sampling.temperature = static_cast<float>(random() % 2);
      o.sampling.seed = random();
      all.push_back(o);
      ASSERT_TRUE(rig.engine->submit(o, rig.sink(records[i])));
      if (random() % 2) rig.engine->step();
    }
    rig.run();
    for (std::size_t i = 0; i < n; ++i)
      EXPECT_EQ(records[i].tokens,
                naive_run(all[i], *all[i].max_tokens, *all[i].sampling.seed).tokens);
  }
}

TEST(Engine, RefusesLimitsThatCannotWork) {
  kv::TestDevice device;
  ManualClock clock;
  FakeExecutor executor;
  const auto make = [&](EngineOptions options) {
    auto store = *kv::KvStore::make(
        device, executor.list, {.type = DType::f32, .block_tokens = 8, .budget_bytes = 1 << 20});
    const auto engine = Engine::make({executor, clock, std::move(store), nullptr}, options);
    return engine ? std::string() : engine.error().what;
  };
  EngineOptions options;
  EXPECT_EQ(make(options), "");
  options.max_step_tokens = 135;
  EXPECT_EQ(make(options), "--max-step-tokens must be at least --batch + 128");
  options.max_step_tokens = 8192;
  EXPECT_EQ(make(options), "--max-step-tokens is above the executor's 4096");
  options.max_step_tokens = 512;
  options.context_length = 5000;
  EXPECT_EQ(make(options), "context length 5000 exceeds the model's 4096");
}

TEST(ContextLimit, PrintsThreeDigits_FIT_32) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "1.00 kB");
  EXPECT_EQ(format_bytes(12'345), "12.3 kB");
  EXPECT_EQ(format_bytes(123'456'789), "123 MB");
  EXPECT_EQ(format_bytes(999'600'000), "1.00 GB");
}

}  // namespace
}  // namespace kvasir::engine
