// Who chooses a row's token: the device, where its scores are, or the host, on one thread or
// several (SAMP-2, SAMP-12). Nobody can tell from the tokens.
#include <gtest/gtest.h>

#include "engine/detail/scripted.h"
#include "engine/engine.h"

namespace kvasir::engine {
namespace {

using namespace scripted;

struct Way {
  bool picks = true;
  int n_threads = 1;
};

// Rows of every kind in one batch: plain, with processors, filters, logprobs, prompt logprobs.
std::vector<Record> run_mixed(Way way) {
  EngineOptions options;
  options.n_sampling_threads = way.n_threads;
  Rig rig(options);
  rig.executor.picks = way.picks;
  std::vector<Record> records(8);
  for (std::size_t i = 0; i < records.size(); ++i) {
    GenerateOptions o = greedy(prompt_of(4 + i, 10 + i), 12);
    o.sampling.temperature = i % 2 ? 0.9f : 0.0f;
    o.sampling.seed = i;
    o.prompt_cache = false;
    if (i == 2) o.sampling.repetition_penalty = 1.3f;
    if (i == 3) o.sampling.top_k = 4;
    if (i == 4 || i == 5) o.sampling.logprobs = true;
    if (i == 6) o.prompt_logprobs = 1;
    EXPECT_TRUE(rig.engine->submit(o, rig.sink(records[i])).has_value());
  }
  rig.run();
  return records;
}

TEST(Picks, AreTheTokensThatTheHostWouldSample) {
  const auto picked = run_mixed({});
  for (const Way way : {Way{false, 1}, Way{true, 3}, Way{false, 3}}) {
    const auto sampled = run_mixed(way);
    for (std::size_t i = 0; i < picked.size(); ++i) {
      EXPECT_EQ(picked[i].tokens, sampled[i].tokens) << i;
      EXPECT_EQ(picked[i].logprobs.size(), sampled[i].logprobs.size());
      EXPECT_EQ(picked[i].prompt_logprobs.size(), sampled[i].prompt_logprobs.size());
      EXPECT_EQ(picked[i].outcome().stats.steps, sampled[i].outcome().stats.steps);
    }
  }
}

// Each samples with its own seed from the scores of one prompt.
TEST(Picks, ChoicesOfOnePromptReadItsScores) {
  Rig rig;
  GenerateOptions o = greedy(prompt_of(20, 3), 8);
  o.sampling.temperature = 1;
  o.sampling.seed = 7;
  std::vector<Record> records(3);
  std::vector<std::unique_ptr<Sink>> sinks;
  for (Record& record : records) sinks.push_back(rig.sink(record));
  ASSERT_TRUE(rig.engine->submit_choices(o, std::move(sinks)).has_value());
  rig.run();

  for (std::uint64_t i = 0; i < records.size(); ++i)
    EXPECT_EQ(records[i].tokens, naive_run(o, 8, 7 + i).tokens) << i;
}

TEST(Picks, ARowThatIsNotFiniteFailsAlone) {  // EXE-25
  for (const int n_threads : {1, 3}) {
    EngineOptions options;
    options.n_sampling_threads = n_threads;
    Rig rig(options);
    const auto good_prompt = prompt_of(5, 1);
    auto bad_prompt = prompt_of(6, 2);
    bad_prompt[0] = good_prompt[0] == 9 ? 8 : 9;
    rig.executor.nan_token = bad_prompt[0];
    Record good, bad, read;
    GenerateOptions with_logprobs = greedy(bad_prompt, 4);
    with_logprobs.sampling.logprobs = true;
    ASSERT_TRUE(rig.engine->submit(greedy(good_prompt, 4), rig.sink(good)).has_value());
    ASSERT_TRUE(rig.engine->submit(greedy(bad_prompt, 4), rig.sink(bad)).has_value());
    ASSERT_TRUE(rig.engine->submit(with_logprobs, rig.sink(read)).has_value());
    rig.run();

    EXPECT_EQ(good.tokens, naive_run(greedy(good_prompt, 4), 4, 0).tokens);
    for (const Record* record : {&bad, &read}) {
      ASSERT_TRUE(record->outcome().failed());
      EXPECT_EQ(record->outcome().failed()->code, "numeric_error");
    }
  }
}

}  // namespace
}  // namespace kvasir::engine
