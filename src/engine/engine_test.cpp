#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "engine/detail/scripted.h"

namespace kvasir::engine {
namespace {

using namespace scripted;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

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
  EXPECT_EQ(waiting.outcome().failed()->code, "queue_timeout");  // SCH-41
  EXPECT_FALSE(rig.engine->has_requests());
}

TEST(Engine, AWaiterLeavesWithQueueTimeoutAndRunningRowsStay_SCH_40) {
  EngineOptions options;
  options.max_rows = 1;
  options.queue_timeout = std::chrono::seconds(2);
  Record running, waiting;  // outlive the engine, which ends the running one
  Rig rig(options);
  ASSERT_TRUE(rig.engine->submit(greedy(long_prompt(12, 50), 50), rig.sink(running)));
  ASSERT_TRUE(rig.engine->submit(greedy({1, 2}, 5), rig.sink(waiting)));
  EXPECT_EQ(rig.engine->step().wake_at, std::chrono::seconds(2));
  rig.clock.advance(std::chrono::seconds(3));
  rig.engine->step();
  EXPECT_EQ(waiting.outcome().failed()->code, "queue_timeout");
  EXPECT_FALSE(waiting.outcome().stats.is_admitted);
  EXPECT_FALSE(running.is_over());
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

TEST(Engine, AFirstTokenThatEndsByLengthOwesNothing_EXE_20) {
  Rig rig;
  Record record;
  GenerateOptions options = greedy(long_prompt(12, 2), 1);
  options.state = rig.engine->create_state();
  ASSERT_TRUE(rig.engine->submit(options, rig.sink(record)));
  EXPECT_EQ(rig.run(), 1);
  EXPECT_EQ(record.outcome().completed()->reason, FinishReason::length);
  EXPECT_EQ(record.outcome().stats.cache_tokens, 12u);
}

TEST(Engine, PublishesWhatCompletedAndNothingThatWasCancelled_EXE_24) {
  for (const bool is_cancelled : {false, true}) {
    Rig rig;
    Record record;
    const std::vector<TokenId> prompt = long_prompt(12, 6);
    const RequestId id = *rig.engine->submit(greedy(prompt, 6), rig.sink(record));
    record.on_token = [&](std::size_t index) {
      if (is_cancelled && index == 4) rig.engine->cancel(id, CancelReason::requested);
    };
    rig.run();
    std::vector<TokenId> all = prompt;
    all.insert(all.end(), record.tokens.begin(), record.tokens.end());
    all.push_back(1);
    // The prompt was published while the row lived; of the rest, exactly the tokens whose KV is
    // committed.
    EXPECT_EQ(rig.engine->cache()->usable_length(all, "test"), is_cancelled ? 12u : 17u);
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

TEST(Engine, AForeignStateServesItsOwnerAndIsNeverPublished_KV19) {
  const kv::KvScheme scheme{.kind = kv::KvSchemeKind::affine_uniform,
                            .bits = 8,
                            .group = 32,
                            .start = 0,
                            .first_span = 24};
  Rig rig({}, 4096, true, 8, nullptr, scheme);
  kv::KvStore& store = rig.engine->store();
  const std::vector<TokenId> prompt = long_prompt(60, 4);
  // What a run without encoding would have left of the first 50 tokens.
  Rig exact;
  exact.executor.list = rig.executor.list;
  auto exact_store = *kv::KvStore::make(
      exact.device, rig.executor.list,
      {.scheme = {.type = DType::f32}, .block_tokens = 8, .budget_bytes = std::size_t{1} << 20});
  const KvRowId source = exact_store->create_row();
  const kv::RowSpan span{source, 50, 0};
  auto step = *exact_store->reserve({&span, 1});
  std::vector<std::uint32_t> positions(50);
  for (std::uint32_t i = 0; i < 50; ++i) positions[i] = i;
  ASSERT_TRUE(exact.executor.forward({std::span(prompt).first(50), positions, step.views(), {}}));
  std::move(step).commit();
  auto planes = *exact_store->planes(exact_store->capture(source));
  for (std::size_t i = 0; i < planes.layers.size(); ++i)
    planes.layers[i].signature = store.signature(i, 10);

  const auto state = rig.engine->import_state(planes);
  ASSERT_TRUE(state) << state.error().what;
  Record record, later;
  GenerateOptions options = greedy(prompt, 4);
  options.state = *state;
  options.snapshot_at = {55};
  ASSERT_TRUE(rig.engine->submit(options, rig.sink(record)));
  rig.run();
  EXPECT_EQ(record.tokens, naive_run(options, 4, 0).tokens);
  EXPECT_EQ(record.outcome().stats.cached_tokens, 50u);
  ASSERT_TRUE(rig.engine->submit(greedy(prompt, 4), rig.sink(later)));
  rig.run();
  EXPECT_EQ(later.outcome().stats.cached_tokens, 0u);
  EXPECT_EQ(later.tokens, record.tokens);
}

// Convert, begin, run, deliver, resolve, release behind windows; and then the next boundary's
// conversion.
TEST(Engine, ABoundaryHasItsOrder_KV56) {
  static std::vector<std::string> trace;  // the device's op is a plain function
  trace.clear();
  const kv::KvScheme scheme{.kind = kv::KvSchemeKind::affine_uniform,
                            .bits = 8,
                            .group = 32,
                            .start = 0,
                            .first_span = 24};
  Rig rig({}, 4096, /*has_cache=*/false, 8, nullptr, scheme);
  rig.device.set_convert([](ops::Device& device, const ops::KvConvertArgs& args) noexcept {
    trace.push_back("convert");
    convert_slots(device, args);
  });
  rig.executor.trace = &trace;
  Record record;
  std::vector<std::size_t> delivered_at, settled_at;  // bytes in use
  record.on_token = [&](std::size_t) {
    trace.push_back("deliver");
    delivered_at.push_back(rig.engine->store().used_bytes());
  };
  GenerateOptions options = greedy(long_prompt(22, 5), 5);
  ASSERT_TRUE(rig.engine->submit(options, rig.sink(record)));
  while (rig.engine->has_requests()) {
    rig.engine->step();
    settled_at.push_back(rig.engine->store().used_bytes());
  }

  // The row reaches 24 with its third token; each of the three layers converts before the next
  // step, and never between a forward and its delivery.
  EXPECT_THAT(trace, ElementsAre("forward 22", "deliver", "forward 1", "deliver", "forward 1",
                                 "deliver", "convert", "convert", "convert", "forward 1", "deliver",
                                 "forward 1", "deliver"));
  EXPECT_EQ(record.tokens, naive_run(options, 5, 0).tokens);
  ASSERT_GE(settled_at.size(), 5u);
  EXPECT_LT(settled_at[0], delivered_at[0]) << "released after the tokens were delivered";
  EXPECT_EQ(settled_at.back(), 0u);
}

TEST(Engine, RefusesLimitsThatCannotWork) {
  kv::TestDevice device;
  ManualClock clock;
  FakeExecutor executor;
  const auto make = [&](EngineOptions options) {
    auto store = *kv::KvStore::make(
        device, executor.list,
        {.scheme = {.type = DType::f32}, .block_tokens = 8, .budget_bytes = 1 << 20});
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

}  // namespace
}  // namespace kvasir::engine
