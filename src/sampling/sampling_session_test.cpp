#include "sampling/sampling_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "base/philox.h"
#include "sampling/logprobs.h"

namespace kvasir::sampling {
namespace {

using testing::ElementsAre;

SamplingOptions greedy() {
  SamplingOptions o;
  o.temperature = 0;
  return o;
}

SamplingSession session(const SamplingOptions& o,
                        std::uint32_t vocab,
                        std::uint64_t seed = 1,
                        std::vector<TokenId> eos = {},
                        std::vector<TokenId> newline = {}) {
  auto made = SamplingSession::make(o, {vocab, eos, newline, seed});
  EXPECT_TRUE(made) << (made ? "" : made.error().what);
  return std::move(*made);
}

std::vector<float> random_row(std::size_t n, float spread, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> x(n);
  for (float& v : x) v = normal(rng);
  return x;
}

// The processed scores of a row, read back through logprobs of all tokens (up to their common
// shift).
std::vector<float> processed(SamplingOptions o,
                             std::vector<float> logits,
                             std::vector<TokenId> prompt,
                             std::vector<TokenId> emitted) {
  o.logprobs = true;
  auto s = session(o, static_cast<std::uint32_t>(logits.size()));
  s.seed_history(prompt, emitted);
  std::vector<float> lp;
  for (TokenId t = 0; t < logits.size(); ++t) lp.push_back(s.score(logits, t)->logprobs->logprob);
  return lp;
}

// Expects processed == `scores` up to the log-softmax.
void expect_scores(const std::vector<float>& lp, const std::vector<double>& scores) {
  double sum = 0;
  for (double v : scores) sum += std::exp(v);
  for (std::size_t i = 0; i < scores.size(); ++i)
    EXPECT_NEAR(lp[i], scores[i] - std::log(sum), 2e-6) << i;
}

TEST(Processors, LogitBiasIsAdded) {  // SAMP-4
  SamplingOptions o;
  o.logit_bias = {{0, 2.0f}, {2, -1.5f}};

  expect_scores(processed(o, {1, 1, 1, 0}, {}, {}), {3, 1, -0.5, 0});
}

TEST(Processors, RepetitionDividesPositiveAndMultipliesNegativeScoresOnceAToken) {  // SAMP-5
  SamplingOptions o;
  o.repetition_penalty = 2;

  expect_scores(processed(o, {1, -1, 3, 4}, {1, 1, 0}, {0, 1}), {0.5, -2, 3, 4});
}

TEST(Processors, RepetitionSeesTheLastTwentyOfPromptAndOutputByDefault) {  // SAMP-5, C10
  SamplingOptions o;
  o.repetition_penalty = 2;
  std::vector<TokenId> prompt(19, 3);
  prompt.insert(prompt.begin(), 0);

  expect_scores(processed(o, {1, 1, 1, 1}, prompt, {2}), {1, 1, 0.5, 0.5});
  o.repetition_context_size = 0;
  expect_scores(processed(o, {1, 1, 1, 1}, prompt, {2}), {0.5, 1, 0.5, 0.5});
}

TEST(Processors, PresenceIsOnceAndFrequencyEachTimeAndThePromptNeverCounts) {  // SAMP-6, 7; C10
  SamplingOptions presence;
  presence.presence_penalty = 0.5f;
  SamplingOptions frequency;
  frequency.frequency_penalty = -0.25f;

  expect_scores(processed(presence, {1, 1, 1, 1}, {0, 0, 3}, {1, 1, 2}), {1, 0.5, 0.5, 1});
  expect_scores(processed(frequency, {1, 1, 1, 1}, {0, 0, 3}, {1, 1, 2}), {1, 1.5, 1.25, 1});
  presence.presence_context_size = 1;
  expect_scores(processed(presence, {1, 1, 1, 1}, {}, {1, 1, 2}), {1, 1, 0.5, 1});
}

TEST(Processors, RunInTheOrderOfTheChain) {  // SAMP-1: ((s + bias) / r) − p − f·count
  SamplingOptions o;
  o.logit_bias = {{0, 3.0f}};
  o.repetition_penalty = 2;
  o.presence_penalty = 0.5f;
  o.frequency_penalty = 0.25f;

  expect_scores(processed(o, {1, 1}, {}, {0, 0}), {2 - 0.5 - 0.5, 1});
}

TEST(Processors, DefaultsAreExactNoOps) {  // C10
  SamplingOptions o;
  o.repetition_penalty = 0;
  EXPECT_FALSE(session(o, 4).needs_history());
  o.repetition_penalty = 1;
  EXPECT_FALSE(session(o, 4).needs_history());
  o.temperature = 0;
  EXPECT_TRUE(session(o, 4).is_plain_greedy());
}

TEST(Processors, ExtremeBiasesAndPenaltiesStayFinite) {  // C27
  SamplingOptions o;
  o.temperature = 1;
  o.logprobs = true;
  o.top_logprobs = 3;
  o.logit_bias = {{0, 3e38f}, {1, -3e38f}};
  o.repetition_penalty = 1e38f;
  o.frequency_penalty = -3e38f;
  auto s = session(o, 3);
  s.seed_history({}, std::vector<TokenId>{2, 2, 2, 1});

  const auto r = s.sample(std::vector<float>{1, 2, -3}, 0);

  ASSERT_TRUE(r) << r.error().what;
  for (const auto& t : r->logprobs->top) EXPECT_TRUE(std::isfinite(t.logprob));
}

TEST(Sample, GreedyTakesTheLowestOfEqualTokens) {  // SAMP-2
  auto s = session(greedy(), 5);

  EXPECT_EQ(s.sample(std::vector<float>{0, 2, 1, 2, 2}, 0)->token, 1u);
}

TEST(Sample, TemperatureZeroIsArgmaxWhateverTheFilters) {  // C10
  const auto x = random_row(1000, 3, 1);
  const auto top = static_cast<TokenId>(std::max_element(x.begin(), x.end()) - x.begin());
  SamplingOptions o = greedy();
  o.top_p = 0;
  o.min_p = 1;
  o.top_k = 0;
  o.xtc_probability = 1;
  o.xtc_threshold = 0;

  EXPECT_EQ(session(o, 1000).sample(x, 0)->token, top);
  o.temperature = 1e-30f;
  o.xtc_probability = 0;
  EXPECT_EQ(session(o, 1000).sample(x, 0)->token, top);
  o.min_p = 0;
  o.top_k = 1000000;
  EXPECT_EQ(session(o, 1000).sample(x, 0)->token, top);
}

TEST(Sample, TopPZeroAndOneAreOff) {  // SAMP-8
  const auto x = random_row(500, 1, 2);
  SamplingOptions plain;
  plain.temperature = 1.5f;
  for (float p : {0.0f, 1.0f}) {
    SamplingOptions o = plain;
    o.top_p = p;
    for (std::uint64_t i = 0; i < 50; ++i) {
      EXPECT_EQ(session(o, 500).sample(x, i)->token, session(plain, 500).sample(x, i)->token);
    }
  }
}

TEST(Sample, FiltersSeeUnscaledProbabilities) {  // SAMP-1: temperature comes last
  const std::vector<float> x{std::log(0.9f), std::log(0.1f)};
  SamplingOptions o;
  o.temperature = 1000;
  o.top_p = 0.85f;
  auto s = session(o, 2);

  for (std::uint64_t i = 0; i < 200; ++i) EXPECT_EQ(s.sample(x, i)->token, 0u);
}

TEST(Sample, XtcFallsWithItsProbabilityAndClampsItsThreshold) {  // SAMP-10
  const std::vector<float> x{std::log(0.55f), std::log(0.45f)};
  SamplingOptions o;
  o.temperature = 1e-6f;
  o.xtc_probability = 0.25f;
  o.xtc_threshold = 0.3f;
  auto s = session(o, 2, 11);
  int dropped = 0;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    const bool expected =
        (philox4x32({static_cast<std::uint32_t>(i), 0, 0, 1}, {11, 0})[0] + 0.5) * 0x1p-32 <= 0.25;
    const TokenId t = s.sample(x, i)->token;
    EXPECT_EQ(t, expected ? 1u : 0u);
    dropped += t == 1;
  }
  EXPECT_NEAR(dropped, 1000, 120);

  o.xtc_probability = 1;
  o.xtc_threshold = 0.9f;  // 0.5 in effect: only token 0 is above, and stays
  EXPECT_EQ(session(o, 2).sample(x, 0)->token, 0u);
}

TEST(Sample, XtcSparesEosAndNewlines) {  // SAMP-10
  const std::vector<float> x{3, 2.5f, 2, 0};
  SamplingOptions o;
  o.temperature = 1e-6f;
  o.xtc_probability = 1;
  o.xtc_threshold = 0.05f;

  EXPECT_EQ(session(o, 4).sample(x, 0)->token, 2u);
  EXPECT_EQ(session(o, 4, 1, {1}).sample(x, 0)->token, 1u);
  EXPECT_EQ(session(o, 4, 1, {}, {0}).sample(x, 0)->token, 0u);
}

TEST(Sample, SamePositionSameDrawAndOtherSeedsOtherDraws) {  // SAMP-20…22, C08
  const std::vector<float> flat(10000, 0.0f);
  SamplingOptions o;
  auto a = session(o, 10000, 42), b = session(o, 10000, 42), other = session(o, 10000, 43);
  std::set<TokenId> seen;
  for (std::uint64_t i = 0; i < 20; ++i) {
    EXPECT_TRUE(other.sample(flat, i));  // a neighbour in between
    const TokenId t = a.sample(flat, i)->token;
    EXPECT_EQ(b.sample(flat, 19 - i)->token, a.sample(flat, 19 - i)->token);
    EXPECT_NE(other.sample(flat, i)->token, t);
    seen.insert(t);
  }
  EXPECT_GT(seen.size(), 15u);
}

TEST(Sample, MaskComesAfterLogprobsAndBeforeTheDraw) {  // SAMP-1, 30
  SamplingOptions o = greedy();
  o.logprobs = true;
  o.top_logprobs = 2;
  auto s = session(o, 4);
  const std::vector<float> x{3, 2, 1, 0};
  const std::vector<std::uint32_t> words{0b1100};
  const TokenMask mask{words};

  const auto free = s.sample(x, 0);
  const auto masked = s.sample(x, 0, &mask);

  EXPECT_EQ(masked->token, 2u);
  EXPECT_EQ(masked->logprobs->top[0].token, 0u);
  EXPECT_EQ(masked->logprobs->top[0].logprob, free->logprobs->top[0].logprob);
  EXPECT_NEAR(masked->logprobs->logprob, free->logprobs->logprob - 2, 1e-6);
}

TEST(Sample, AMaskThatLeavesNothingIsADeadEnd) {  // SAMP-3
  for (float t : {0.0f, 1.0f}) {
    SamplingOptions o;
    o.temperature = t;
    auto s = session(o, 40);
    const std::vector<std::uint32_t> words{0};
    const TokenMask mask{words};
    const auto r = s.sample(std::vector<float>(40, 1.0f), 0, &mask);

    ASSERT_FALSE(r);
    EXPECT_EQ(r.error().what, "grammar_dead_end");
  }
}

TEST(Sample, FiltersNeverEmptyAMaskedRow) {
  SamplingOptions o;
  o.temperature = 1;
  o.top_p = 0.1f;
  o.min_p = 1;
  o.xtc_probability = 1;
  o.top_k = 1;
  auto s = session(o, 64);
  auto x = random_row(64, 5, 3);
  x[9] = -1e4f;
  x[40] = -2e4f;
  const std::vector<std::uint32_t> words{1u << 9, 1u << 8};
  const TokenMask mask{words};

  EXPECT_EQ(s.sample(x, 0, &mask)->token, 9u);
}

TEST(Sample, IgnoreEosMasksItAfterLogprobs) {  // SAMP-42
  SamplingOptions o = greedy();
  o.ignore_eos = true;
  o.logprobs = true;
  o.top_logprobs = 1;
  auto s = session(o, 3, 1, {0, 7});
  const auto r = s.sample(std::vector<float>{5, 1, 2}, 0);

  EXPECT_FALSE(s.is_plain_greedy());
  EXPECT_EQ(r->token, 2u);
  EXPECT_EQ(r->logprobs->top[0].token, 0u);
}

TEST(Sample, NonFiniteLogitsFailTheRow) {  // EXE-25
  for (float bad : {std::nanf(""), std::numeric_limits<float>::infinity(),
                    -std::numeric_limits<float>::infinity()}) {
    auto s = session(greedy(), 40);
    std::vector<float> x(40, 1.0f);
    x[37] = bad;
    const auto r = s.sample(x, 0);

    ASSERT_FALSE(r);
    EXPECT_EQ(r.error().what, "numeric_error");
    EXPECT_TRUE(s.sample(std::vector<float>(40, 1.0f), 0));
  }
}

TEST(Logprobs, AreThoseBeforeTruncationAndTemperature) {  // SAMP-30
  const auto x = random_row(777, 2, 5);
  SamplingOptions o = greedy();
  o.logprobs = true;
  o.top_logprobs = 20;
  const auto reference = session(o, 777).sample(x, 0);
  o.temperature = 2;
  const auto hot = session(o, 777).sample(x, 0);
  o.top_k = 1;
  const auto cut = session(o, 777).sample(x, 0);

  ASSERT_EQ(reference->logprobs->top.size(), 20u);
  for (const auto* r : {&*hot, &*cut}) {
    for (std::size_t i = 0; i < 20; ++i) {
      EXPECT_EQ(r->logprobs->top[i].token, reference->logprobs->top[i].token);
      EXPECT_EQ(r->logprobs->top[i].logprob, reference->logprobs->top[i].logprob);
    }
  }
  EXPECT_EQ(cut->logprobs->logprob, reference->logprobs->top[0].logprob);
}

TEST(Logprobs, AskingForThemDoesNotMoveTheDraw) {
  const auto x = random_row(3000, 2, 6);
  SamplingOptions o;
  o.temperature = 1;
  SamplingOptions with = o;
  with.logprobs = true;
  for (std::uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(session(o, 3000).sample(x, i)->token, session(with, 3000).sample(x, i)->token);
  }
}

TEST(Logprobs, TopIsDescendingWithTiesToTheLowestId) {  // SAMP-30, 32
  const std::vector<float> x{1, 3, 2, 3, 2};
  const auto r = logprobs_of(x, 4, 3);
  ASSERT_TRUE(r);

  EXPECT_THAT((std::vector{r->top[0].token, r->top[1].token, r->top[2].token}),
              ElementsAre(1, 3, 2));
  EXPECT_EQ(r->logprob, r->top[2].logprob);
  EXPECT_NEAR(r->top[0].logprob,
              3 - std::log(2 * std::exp(3.0) + 2 * std::exp(2.0) + std::exp(1.0)), 1e-6);
  EXPECT_EQ(logprobs_of(x, 0, 99)->top.size(), 5u);
  EXPECT_FALSE(logprobs_of(x, 5, 0));
  EXPECT_EQ(logprobs_of(std::vector<float>{0, std::nanf("")}, 0, 0).error().what, "numeric_error");
}

TEST(Logprobs, ScoreOfAForcedTokenEqualsTheSampledRecord) {  // SAMP-30, 56
  const auto x = random_row(100, 2, 8);
  SamplingOptions o;
  o.logprobs = true;
  o.top_logprobs = 4;
  o.presence_penalty = 1;
  auto s = session(o, 100);
  s.seed_history(std::vector<TokenId>{1}, std::vector<TokenId>{2});
  const auto drawn = s.sample(x, 3);
  const auto forced = s.score(x, drawn->token);

  EXPECT_EQ(forced->logprobs->logprob, drawn->logprobs->logprob);
  EXPECT_EQ(forced->logprobs->top[3].token, drawn->logprobs->top[3].token);
}

TEST(Snapshot, RestoreForgetsCommittedTokens) {  // EXE-53
  const auto x = random_row(50, 0.1f, 9);
  SamplingOptions o = greedy();
  o.frequency_penalty = 0.5f;
  o.repetition_penalty = 1.3f;
  auto s = session(o, 50);
  s.seed_history(std::vector<TokenId>{4, 5}, std::vector<TokenId>{6});
  const TokenId before = s.sample(x, 1)->token;
  const auto mark = s.snapshot();
  for (int i = 0; i < 30; ++i) s.commit(s.sample(x, 1)->token);
  EXPECT_NE(s.sample(x, 1)->token, before);

  s.restore(mark);

  EXPECT_EQ(s.sample(x, 1)->token, before);
}

TEST(Make, RejectsWhatNoRequestMaySay) {  // SAMP-4, C27
  const auto error = [](SamplingOptions o) {
    const auto r = SamplingSession::make(o, {100, {}, {}, 1});
    return r ? std::string() : r.error().what;
  };
  SamplingOptions o;
  o.logit_bias = {{100, 1.0f}};
  EXPECT_EQ(error(o), "logit_bias token id 100 is out of range");
  o = {};
  o.temperature = std::nanf("");
  EXPECT_NE(error(o), "");
  o = {};
  o.top_p = 1.5f;
  EXPECT_NE(error(o), "");
  EXPECT_EQ(error({}), "");
}

TEST(SystemSeed, IsDistinctForEveryRequest) {  // SAMP-22
  std::set<std::uint64_t> seeds;
  for (int i = 0; i < 1000; ++i) seeds.insert(*system_seed());

  EXPECT_EQ(seeds.size(), 1000u);
}

}  // namespace
}  // namespace kvasir::sampling
