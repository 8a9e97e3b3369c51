// Look-ahead (EXE-10, KV-53): a device's next step is launched before the last one's tokens are
// read, and nothing else changes.
#include <gtest/gtest.h>

#include <random>

#include "engine/detail/scripted.h"
#include "engine/engine.h"

namespace kvasir::engine {
namespace {

using namespace scripted;

struct Ended {
  std::vector<TokenId> tokens;
  Outcome outcome;
};

// Runs requests together, on a device that runs behind or not.
std::vector<Ended> run_all(bool is_behind,
                           const std::vector<GenerateOptions>& requests,
                           const std::vector<std::optional<std::size_t>>& stops = {},
                           bool has_state = false,
                           std::uint32_t* n_ahead = nullptr) {
  Rig rig({}, 4096, true, 8, nullptr, {}, has_state);
  rig.executor.is_behind = is_behind;
  std::vector<Record> records(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (i < stops.size()) records[i].stops_at = stops[i];
    EXPECT_TRUE(rig.engine->submit(requests[i], rig.sink(records[i])).has_value());
  }
  rig.run();
  if (n_ahead) *n_ahead = rig.executor.n_ahead;
  std::vector<Ended> out;
  for (const Record& record : records) out.push_back({record.tokens, record.outcome()});
  rig.engine->cache()->clear();
  EXPECT_EQ(rig.engine->store().used_blocks(0), 0u);
  return out;
}

void expect_equal(const std::vector<Ended>& a, const std::vector<Ended>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].tokens, b[i].tokens);
    EXPECT_EQ(a[i].outcome.forwarded, b[i].outcome.forwarded);
    EXPECT_EQ(a[i].outcome.stats.cache_tokens, b[i].outcome.stats.cache_tokens);
    EXPECT_EQ(a[i].outcome.stats.steps, b[i].outcome.stats.steps);
    ASSERT_TRUE(a[i].outcome.completed() && b[i].outcome.completed());
    EXPECT_EQ(a[i].outcome.completed()->reason, b[i].outcome.completed()->reason);
  }
}

TEST(LookAhead, LaunchesTheNextStepBeforeItDeliversThisOnes) {
  Rig rig;
  std::vector<std::string> trace;
  rig.executor.is_behind = true;
  rig.executor.trace = &trace;
  Record record;
  record.trace = &trace;
  record.name = "a";
  const auto prompt = long_prompt(5, 4);
  const auto naive = naive_run(greedy(prompt, 4), 4, 0).tokens;
  ASSERT_TRUE(rig.engine->submit(greedy(prompt, 4), rig.sink(record)).has_value());
  rig.run();

  const auto commit = [&](std::size_t i) { return "commit a " + std::to_string(naive[i]); };
  // The first token is delivered before anything else runs (SCH-15), the last is never fed (EXE-9).
  EXPECT_EQ(trace,
            (std::vector<std::string>{"forward 5", commit(0), "forward 1", "forward 1", commit(1),
                                      "forward 1", commit(2), commit(3), "finish a"}));
  EXPECT_EQ(record.outcome().stats.cache_tokens, 5u + 3u);
}

// EXE-10's own test: on = off over 1,000 random stop points, alone and beside others.
TEST(LookAhead, EqualsTheStepByStepRunAtEveryStopPoint) {
  std::mt19937 random(5);
  std::uint32_t n_ahead = 0, n_steps_ahead = 0;
  for (int i = 0; i < 250; ++i) {
    std::vector<GenerateOptions> requests;
    std::vector<std::optional<std::size_t>> stops;
    for (int r = 0; r < 4; ++r) {
      GenerateOptions o =
          greedy(prompt_of(1 + random() % 30, random()), static_cast<std::uint32_t>(random() % 20));
      o.sampling.temperature = static_cast<float>(random() % 2);
      o.sampling.seed = random();
      stops.push_back(random() % 2 ? std::optional<std::size_t>(random() % 12) : std::nullopt);
      requests.push_back(o);
    }
    const bool has_state = i % 3 == 0;

    expect_equal(run_all(true, requests, stops, has_state, &n_ahead),
                 run_all(false, requests, stops, has_state));
    n_steps_ahead += n_ahead;
  }
  EXPECT_GT(n_steps_ahead, 500u);
}

TEST(LookAhead, WaitsForRowsThatHaveMoreToDo) {  // grammars, history, logprobs, callers' states
  const auto prompt = long_prompt(6, 10);
  const auto n_ahead = [&](auto&& change) {
    GenerateOptions o = greedy(prompt, 10);
    change(o);
    std::uint32_t n = 0;
    run_all(true, {o}, {}, false, &n);
    return n;
  };

  EXPECT_EQ(n_ahead([](auto&) {}), 8u);
  EXPECT_EQ(n_ahead([](auto& o) { o.sampling.repetition_penalty = 1.2f; }), 0u);
  EXPECT_EQ(n_ahead([](auto& o) { o.sampling.logprobs = true; }), 0u);
  EXPECT_EQ(n_ahead([](auto& o) {
              o.sampling.temperature = 1;
              o.sampling.top_k = 5;
            }),
            0u);
}

TEST(LookAhead, NeedsADeviceThatRunsBehind) {
  std::uint32_t n = 1;
  run_all(false, {greedy(long_prompt(6, 10), 10)}, {}, false, &n);

  EXPECT_EQ(n, 0u);
}

TEST(LookAhead, ACallersStateIsFedStepByStep) {  // it is handed back whatever happens
  Rig rig;
  rig.executor.is_behind = true;
  Record record;
  GenerateOptions o = greedy(long_prompt(6, 10), 10);
  o.state = rig.engine->create_state();
  ASSERT_TRUE(rig.engine->submit(o, rig.sink(record)).has_value());
  rig.run();

  EXPECT_EQ(rig.executor.n_ahead, 0u);
  EXPECT_EQ(rig.engine->state_length(*o.state), 6u + 9u);
}

TEST(LookAhead, AFailureEndsTheRowsOfBothStepsAndGivesBackEveryBlock) {  // SCH-34, SCH-35
  for (std::uint32_t call = 2; call < 8; ++call) {
    Rig rig;
    rig.executor.is_behind = true;
    rig.executor.fails_at = call;
    Record a, b;
    ASSERT_TRUE(rig.engine->submit(greedy(long_prompt(6, 12), 12), rig.sink(a)).has_value());
    ASSERT_TRUE(rig.engine->submit(greedy(long_prompt(9, 12), 12), rig.sink(b)).has_value());
    rig.run();

    for (const Record* record : {&a, &b}) {
      ASSERT_TRUE(record->outcome().failed());
      EXPECT_EQ(record->outcome().failed()->code, "engine_failed");
      // Token i is sampled by call i + 1 or so; the failed call's is not delivered, nor any later.
      EXPECT_EQ(record->outcome().stats.cache_tokens + 1,
                record->outcome().stats.prompt_tokens + record->tokens.size());
    }
    rig.engine->cache()->clear();
    EXPECT_EQ(rig.engine->store().used_blocks(0), 0u);

    Record again;
    const auto prompt = long_prompt(6, 12);
    ASSERT_TRUE(rig.engine->submit(greedy(prompt, 12), rig.sink(again)).has_value());
    rig.run();
    EXPECT_EQ(again.tokens, naive_run(greedy(prompt, 12), 12, 0).tokens);
  }
}

TEST(LookAhead, ACancelledRowsStepOnItsWayIsForgotten) {  // SCH-36: within two boundaries
  Rig rig;
  rig.executor.is_behind = true;
  Record gone, stays;
  const auto prompt = long_prompt(9, 20);
  const auto id = *rig.engine->submit(greedy(long_prompt(6, 20), 20), rig.sink(gone));
  ASSERT_TRUE(rig.engine->submit(greedy(prompt, 20), rig.sink(stays)).has_value());
  while (gone.tokens.size() < 5) rig.engine->step();
  rig.engine->cancel(id, CancelReason::requested);
  rig.run();

  EXPECT_TRUE(gone.outcome().cancelled());
  EXPECT_EQ(gone.tokens.size(), 5u);
  EXPECT_EQ(gone.outcome().stats.cache_tokens, 6u + 4u);
  EXPECT_EQ(stays.tokens, naive_run(greedy(prompt, 20), 20, 0).tokens);
}

TEST(LookAhead, ARowWithoutFiniteScoresFailsAlone) {  // EXE-25
  Rig rig;
  rig.executor.is_behind = true;
  Record good, bad;
  const auto prompt = long_prompt(7, 12);
  auto broken = long_prompt(5, 12);
  for (std::size_t n = 8; broken[0] == prompt[0]; ++n) broken = long_prompt(n, 12);
  ASSERT_TRUE(rig.engine->submit(greedy(prompt, 12), rig.sink(good)).has_value());
  ASSERT_TRUE(rig.engine->submit(greedy(broken, 12), rig.sink(bad)).has_value());
  while (bad.tokens.size() < 3) rig.engine->step();
  rig.executor.nan_token = broken[0];
  rig.run();

  ASSERT_TRUE(bad.outcome().failed());
  EXPECT_EQ(bad.outcome().failed()->code, "numeric_error");
  EXPECT_EQ(good.tokens, naive_run(greedy(prompt, 12), 12, 0).tokens);
}

TEST(LookAhead, WhatIsThrownThroughAStepLeavesNothingOpen) {  // memory that ran out, say
  for (const bool is_behind : {false, true}) {
    Rig rig;
    rig.executor.is_behind = is_behind;
    Record first, second;
    first.on_token = [](std::size_t i) {
      if (i == 3) throw std::bad_alloc();
    };
    ASSERT_TRUE(rig.engine->submit(greedy(long_prompt(6, 9), 9), rig.sink(first)).has_value());
    ASSERT_TRUE(rig.engine->submit(greedy(long_prompt(7, 9), 9), rig.sink(second)).has_value());

    EXPECT_THROW(rig.run(), std::bad_alloc);
    rig.engine->fail_all({Errc::capacity, "no memory"});
    EXPECT_TRUE(first.outcome().failed() && second.outcome().failed());
    EXPECT_EQ(rig.executor.n_launched, 0u);
    rig.engine->cache()->clear();
    EXPECT_EQ(rig.engine->store().used_blocks(0), 0u);
  }
}

TEST(LookAhead, ANewcomerIsAdmittedAtTheNextBoundary) {
  Rig rig;
  rig.executor.is_behind = true;
  Record first, second;
  const auto a = long_prompt(6, 30), b = long_prompt(9, 5);
  ASSERT_TRUE(rig.engine->submit(greedy(a, 30), rig.sink(first)).has_value());
  while (first.tokens.size() < 6) rig.engine->step();
  ASSERT_TRUE(rig.engine->submit(greedy(b, 5), rig.sink(second)).has_value());
  rig.engine->step();  // collects what is on its way
  rig.engine->step();

  EXPECT_EQ(second.tokens.size(), 1u);
  rig.run();
  EXPECT_EQ(first.tokens, naive_run(greedy(a, 30), 30, 0).tokens);
  EXPECT_EQ(second.tokens, naive_run(greedy(b, 5), 5, 0).tokens);
}

}  // namespace
}  // namespace kvasir::engine
