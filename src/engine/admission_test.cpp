// What admission takes from the cache and leaves to others, and what a step may want.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/detail/scripted.h"
#include "engine/engine.h"

namespace kvasir::engine {
namespace {

using namespace scripted;

// Prompts that want logits everywhere take what rows leave, the first at least 64 (SCH-13); drafts
// take the rest.
TEST(EngineBatch, StepsNeverWantMoreRowsThanTheExecutorHas_SAMP_32) {
  EngineOptions options;
  options.max_rows = 4;
  Rig rig(options);
  rig.executor.most_wanted = 4 + kPromptLogitRows;
  std::vector<Record> records(4);
  for (std::uint32_t i = 0; i < 4; ++i) {
    GenerateOptions o = greedy(prompt_of(200, 1 + i), 6);
    if (i < 2) o.prompt_logprobs = 1;
    ASSERT_TRUE(rig.engine->submit(o, rig.sink(records[i])));
  }
  rig.run();
  EXPECT_EQ(records[0].prompt_logprobs.size(), 199u);
  EXPECT_EQ(records[1].prompt_logprobs.size(), 199u);
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(records[i].tokens, naive_run(greedy(prompt_of(200, 1 + i), 6), 6, 0).tokens);
  }
  EXPECT_GE(*std::max_element(rig.executor.wanted_sizes.begin(), rig.executor.wanted_sizes.end()),
            64u);
}

// A short prompt takes what it is long, not what it might: those behind it go along.
TEST(EngineBatch, ShortPromptsThatWantAllRowsShareAStep_SCH_11) {
  EngineOptions options;
  options.max_rows = 4;
  std::vector<Record> records(4);
  Rig rig(options);
  rig.executor.most_wanted = 300;
  for (std::uint32_t i = 0; i < 4; ++i) {
    GenerateOptions o = greedy(prompt_of(50, 1 + i), 1);
    o.prompt_logprobs = 1;
    ASSERT_TRUE(rig.engine->submit(o, rig.sink(records[i])));
  }
  EXPECT_EQ(rig.run(), 1);
  EXPECT_EQ(rig.executor.step_sizes.front(), 200u);
}

// A head that waits for blocks finds its prefix at every step, but takes it once (SCH-6).
TEST(EngineBatch, AWaitingRequestCountsItsHitOnce_CACHE_23) {
  std::uint64_t n_waited = 0;
  for (std::uint32_t n_blocks = 60; n_blocks <= 100; n_blocks += 4) {
    Record first, running, waiting;  // outlive the engine, which ends what still runs
    Rig rig({}, n_blocks);
    const auto run_on = [](std::vector<TokenId> prompt, std::uint32_t n) {
      GenerateOptions o = greedy(std::move(prompt), n);
      o.sampling.ignore_eos = true;
      return o;
    };
    if (!rig.engine->submit(run_on(prompt_of(100, 1), 2), rig.sink(first))) continue;
    rig.run();
    if (!rig.engine->submit(run_on(prompt_of(30, 2), 80), rig.sink(running))) continue;
    rig.engine->step();
    const auto before = rig.engine->cache()->stats();
    std::vector<TokenId> longer = prompt_of(100, 1);
    longer.push_back(7);
    if (!rig.engine->submit(run_on(longer, 60), rig.sink(waiting))) continue;
    n_waited += rig.engine->step().n_admitted == 0 ? 1 : 0;
    rig.run();
    const auto after = rig.engine->cache()->stats();
    EXPECT_EQ(after.hits + after.misses - before.hits - before.misses, 1u) << n_blocks;
  }
  EXPECT_GT(n_waited, 0u);
}

TEST(EngineBatch, AnHeirPublishesTheBoundariesOfItsLeader_CACHE_13) {
  for (const bool is_cancelled : {false, true}) {
    Rig rig;
    std::vector<Record> choices(2);
    Record second;
    GenerateOptions o = greedy(prompt_of(100, 1), 4);
    o.snapshot_at = {70};
    o.prefill_chunk = 32;
    std::vector<std::unique_ptr<Sink>> sinks;
    for (Record& record : choices) sinks.push_back(rig.sink(record));
    const auto ids = rig.engine->submit_choices(o, std::move(sinks));
    ASSERT_TRUE(ids);
    rig.engine->step();
    if (is_cancelled) rig.engine->cancel((*ids)[0], CancelReason::requested);
    rig.run();

    std::vector<TokenId> other = prompt_of(100, 1);
    other.resize(70);
    for (const TokenId token : prompt_of(30, 99)) other.push_back(token);
    ASSERT_TRUE(rig.engine->submit(greedy(other, 4), rig.sink(second)));
    rig.run();
    EXPECT_EQ(second.outcome().stats.cached_tokens, 70u) << is_cancelled;
  }
}

}  // namespace
}  // namespace kvasir::engine
