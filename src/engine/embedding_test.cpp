// Embedding requests (EXE-41, MOD-61): rows like any other, whose hidden states go out and which
// sample nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "engine/detail/scripted.h"

namespace kvasir::engine {
namespace {

using namespace scripted;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

GenerateOptions embed(std::vector<TokenId> prompt, WantedHidden wanted = WantedHidden::all) {
  GenerateOptions options;
  options.prompt = std::move(prompt);
  options.hidden = wanted;
  return options;
}

// Hidden rows of a trunk, without any KV.
std::vector<float> naive_trunk(std::span<const TokenId> prompt, WantedHidden wanted) {
  std::vector<float> out;
  const std::size_t first = wanted == WantedHidden::all ? 0 : prompt.size() - 1;
  for (std::size_t i = first; i < prompt.size(); ++i) {
    const std::vector<float> row = naive_logits(prompt.first(i + 1));
    out.insert(out.end(), row.begin(), row.begin() + kHidden);
  }
  return out;
}

std::vector<float> naive_encoder(std::span<const TokenId> prompt) {
  std::vector<float> out;
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    const std::vector<float> row = encoder_row(prompt, i);
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

EngineOptions small_steps() {
  EngineOptions options;
  options.max_rows = 4;
  options.max_step_tokens = 160;
  return options;
}

Rig encoder_rig() {
  return Rig(small_steps(), 0, true, 8, nullptr, {}, false, /*is_encoder=*/true);
}

TEST(Embedding, ATrunksRowsAreTheSameInAnyChunksAndAnyCompany_MOD61) {
  for (const std::uint32_t chunk : {1u, 7u, 64u, 2048u}) {
    for (const WantedHidden wanted : {WantedHidden::all, WantedHidden::last}) {
      Rig rig(small_steps());
      rig.executor.is_trunk = true;
      std::vector<Record> records(6);
      std::vector<std::vector<TokenId>> prompts;
      for (std::size_t i = 0; i < records.size(); ++i) {
        prompts.push_back(prompt_of(1 + 53 * i, i));
        GenerateOptions options = embed(prompts[i], wanted);
        options.prefill_chunk = chunk;
        ASSERT_TRUE(rig.engine->submit(options, rig.sink(records[i])));
      }
      rig.run();

      for (std::size_t i = 0; i < records.size(); ++i) {
        EXPECT_EQ(records[i].hidden, naive_trunk(prompts[i], wanted)) << i << " by " << chunk;
        EXPECT_THAT(records[i].tokens, IsEmpty());
        EXPECT_EQ(records[i].outcome().completed()->reason, FinishReason::length);
      }
    }
  }
}

TEST(Embedding, NeverTouchesThePromptCache_EXE_45) {
  Rig rig;
  rig.executor.is_trunk = true;
  Record first, second;
  const std::vector<TokenId> prompt = prompt_of(200, 1);

  ASSERT_TRUE(rig.engine->submit(embed(prompt), rig.sink(first)));
  rig.run();
  ASSERT_TRUE(rig.engine->submit(embed(prompt), rig.sink(second)));
  rig.run();

  EXPECT_EQ(second.outcome().stats.cached_tokens, 0u);
  EXPECT_EQ(rig.engine->snapshot().cache.entries, 0u);
  EXPECT_EQ(second.hidden, first.hidden);
}

TEST(Embedding, AnEncodersInputIsFedInOneStepEvenPastTheBudget_SCH_12) {
  Rig rig = encoder_rig();
  std::vector<Record> records(5);
  std::vector<std::vector<TokenId>> prompts;
  for (const std::size_t n : {300u, 10u, 100u, 90u, 1u}) {
    prompts.push_back(prompt_of(n, n));
    GenerateOptions options = embed(prompts.back());
    options.prefill_chunk = 16;
    ASSERT_TRUE(rig.engine->submit(options, rig.sink(records[prompts.size() - 1])));
  }
  rig.run();

  for (std::size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i].hidden, naive_encoder(prompts[i])) << i;
    EXPECT_EQ(records[i].outcome().stats.steps, 1u);
    EXPECT_EQ(records[i].outcome().stats.cached_tokens, 0u);
  }
  EXPECT_THAT(rig.executor.step_sizes, Contains(300u));
  EXPECT_EQ(std::accumulate(rig.executor.step_sizes.begin(), rig.executor.step_sizes.end(), 0u),
            501u);
}

TEST(Embedding, LongerThanTheContextIsRefused_MOD61) {
  Rig rig = encoder_rig();
  Record record;
  const auto id = rig.engine->submit(embed(prompt_of(4097, 1)), rig.sink(record));
  ASSERT_FALSE(id);
  EXPECT_EQ(id.error().id, "context_length_exceeded");
}

TEST(Embedding, IsRefusedWhereTheModelGivesSomethingElse_SRV_14) {
  Rig rig;
  Record record;
  EXPECT_EQ(rig.engine->submit(embed({1, 2}), rig.sink(record)).error().what,
            "this model does not produce embeddings");
  rig.executor.is_trunk = true;
  EXPECT_EQ(rig.engine->submit(greedy({1, 2}, 3), rig.sink(record)).error().what,
            "this model produces embeddings, not text");
}

TEST(Embedding, AFailureIsItsRowsOwn_EXE_25) {
  Rig rig = encoder_rig();
  rig.executor.nan_token = 9;
  Record good, bad, refused;
  refused.refuses_hidden = true;
  ASSERT_TRUE(rig.engine->submit(embed({1, 2, 3}), rig.sink(good)));
  ASSERT_TRUE(rig.engine->submit(embed({9, 2, 3}), rig.sink(bad)));
  ASSERT_TRUE(rig.engine->submit(embed({4, 2, 3}), rig.sink(refused)));
  rig.run();

  EXPECT_EQ(good.hidden, naive_encoder(std::vector<TokenId>{1, 2, 3}));
  EXPECT_EQ(bad.outcome().failed()->code, "numeric_error");
  EXPECT_THAT(bad.hidden, IsEmpty());
  EXPECT_EQ(refused.outcome().failed()->code, "sink_failed");
}

TEST(Embedding, ACancelledRowGivesItsBlocksBack) {
  Rig rig(small_steps());
  rig.executor.is_trunk = true;
  Record record;
  const auto id = rig.engine->submit(embed(prompt_of(1000, 1)), rig.sink(record));
  ASSERT_TRUE(id);
  rig.engine->step();
  rig.engine->cancel(*id, CancelReason::consumer_closed);
  rig.run();

  EXPECT_TRUE(record.outcome().cancelled());
  EXPECT_EQ(rig.engine->snapshot().kv_used_bytes, 0u);
}

}  // namespace
}  // namespace kvasir::engine
