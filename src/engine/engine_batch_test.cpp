// Many rows in one step: admission, sharing, choices, drafts, budgets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <set>

#include "cache/cache_namespace.h"
#include "engine/detail/scripted.h"
#include "engine/engine.h"

namespace kvasir::engine {
namespace {

using namespace scripted;
using testing::ElementsAre;

TEST(EngineBatch, AnOversizePromptRunsAloneInChunks_SCH_5) {
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

TEST(EngineBatch, ACohortOfShortPromptsSharesStepsAndTheNinthWaits_SCH_4) {
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
  rig.run();
}

TEST(EngineBatch, NothingPassesTheHeadOfTheQueue_SCH_1) {
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

TEST(EngineBatch, TheQueueIsBounded_SCH_1) {
  EngineOptions options;
  options.queue_limit = 2;
  Rig rig(options);
  Record a, b, c;
  ASSERT_TRUE(rig.engine->submit(greedy({1}, 1), rig.sink(a)));
  ASSERT_TRUE(rig.engine->submit(greedy({1}, 1), rig.sink(b)));
  const Result<RequestId> refused = rig.engine->submit(greedy({1}, 1), rig.sink(c));
  EXPECT_EQ(refused.error().id, "queue_full");
  EXPECT_EQ(refused.error().code, Errc::capacity);
  rig.run();
}

TEST(EngineBatch, HoldStopsAdmissionAndCloseEndsWaiters_SCH_30) {
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

TEST(EngineBatch, APausedSinkIsNotFedAndOthersGoOn_SCH_43) {
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

TEST(EngineBatch, ColdWarmAndUncachedRunsAreEqual_C18_CACHE14) {
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

// Equal tokens of other media are never shared; where media have no hash, nothing is taken or left.
TEST(EngineBatch, MediaAreANamespaceOfTheirOwnOrBypassTheCache_CACHE12) {
  Rig rig;
  const auto cached = [&](const char* media, bool uses_cache) {
    GenerateOptions options = greedy(long_prompt(30, 3), 3);
    options.cache_namespace = cache::cache_namespace({.model_fp = "m",
                                                      .numerics_id = "fake",
                                                      .cache_key = "f32",
                                                      .layers = {},
                                                      .adapter_ns = {},
                                                      .media_ns = media,
                                                      .method_ns = {}});
    options.prompt_cache = uses_cache;
    options.snapshot_at = {20};
    Record record;
    EXPECT_TRUE(rig.engine->submit(options, rig.sink(record)));
    rig.run();
    EXPECT_EQ(record.tokens, naive_run(options, 3, 0).tokens);
    return record.outcome().stats.cached_tokens;
  };
  EXPECT_EQ(cached("", false), 0u);
  EXPECT_EQ(rig.engine->cache()->stats().entries, 0u);
  EXPECT_EQ(cached("h1", true), 0u);
  EXPECT_EQ(cached("h1", false), 0u);
  EXPECT_EQ(cached("h2", true), 0u);
  EXPECT_EQ(cached("", true), 0u);
  EXPECT_EQ(cached("h1", true), 29u);
  EXPECT_EQ(rig.engine->cache()->stats().misses, 3u) << "a bypass does not even ask";
}

TEST(EngineBatch, KeepsASnapshotAtTheAskedPosition_CACHE_13) {
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

// The second user of a long system prompt pays for the snapshot where their prompts part, the third
// starts from it, on layers that are not resumable everywhere.
TEST(EngineBatch, UsersOfOneSystemPromptShareItOnWindowedAndRecurrentLayers_CACHE_15) {
  for (const bool has_state : {false, true}) {
    EngineOptions engine_options;
    engine_options.snapshot_every = 0;
    Rig rig(engine_options, 4096, true, 8, nullptr, {}, has_state);
    const std::vector<TokenId> system = prompt_of(1000, 77);
    std::vector<std::uint64_t> cached;
    for (const std::uint32_t user : {1u, 2u, 3u, 4u}) {
      std::vector<TokenId> prompt = system;
      const TokenId first = 1 + user;  // they part right behind it
      const std::vector<TokenId> question = prompt_of(30, user);
      prompt.push_back(first);
      prompt.insert(prompt.end(), question.begin(), question.end());
      Record record;
      const GenerateOptions options = greedy(prompt, 5);
      ASSERT_TRUE(rig.engine->submit(options, rig.sink(record)));
      rig.run();
      EXPECT_EQ(record.tokens, naive_run(options, 5, 0).tokens) << user;
      cached.push_back(record.outcome().stats.cached_tokens);
    }
    EXPECT_EQ(cached, (std::vector<std::uint64_t>{0, 0, 1000, 1000})) << has_state;
  }
}

TEST(EngineBatch, WaypointsServeAPromptThatPartsAnywhere_CACHE_15) {
  for (const bool has_state : {false, true}) {
    EngineOptions engine_options;
    engine_options.snapshot_every = 64;
    Rig rig(engine_options, 4096, true, 8, nullptr, {}, has_state);
    const std::vector<TokenId> whole = prompt_of(300, 5);
    Record first, second;
    ASSERT_TRUE(rig.engine->submit(greedy(whole, 2), rig.sink(first)));
    rig.run();
    std::vector<TokenId> other(whole.begin(), whole.begin() + 200);
    other.push_back(whole[200] == 1 ? 2 : 1);
    ASSERT_TRUE(rig.engine->submit(greedy(other, 2), rig.sink(second)));
    rig.run();
    EXPECT_EQ(second.outcome().stats.cached_tokens, 192u) << has_state;
    EXPECT_EQ(second.tokens, naive_run(greedy(other, 2), 2, 0).tokens);
  }
}

TEST(EngineBatch, ChoicesShareThePromptAndDrawTheirOwnTokens_SAMP_22) {
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

TEST(EngineBatch, AChoiceInheritsThePromptOfOneThatLeaves) {
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

TEST(EngineBatch, AChoiceGoesOnWhenTheFirstEndsAtItsFirstToken) {
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

TEST(EngineBatch, UnseededRequestsHaveDistinctSeeds_SAMP_22) {
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

TEST(EngineBatch, ReportsPromptLogprobsOnce_SAMP_32) {
  Rig rig;
  std::vector<Record> records(3);
  std::vector<std::unique_ptr<Sink>> sinks;
  for (Record& record : records) sinks.push_back(rig.sink(record));
  GenerateOptions options = greedy(prompt_of(75, 2), 0);
  options.prompt_logprobs = 2;
  ASSERT_TRUE(rig.engine->submit_choices(options, std::move(sinks)));
  EXPECT_EQ(rig.run(), 1);  // the executor has room for all
  for (const Record& record : records) {
    ASSERT_EQ(record.prompt_logprobs.size(), 74u);
    EXPECT_EQ(record.prompt_logprobs[0].top.size(), 2u);
    EXPECT_TRUE(record.outcome().completed());
  }
}

TEST(EngineBatch, LogprobsTravelWithTheirTokens_EXE_7) {
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

TEST(EngineBatch, DraftsChangeTheNumberOfStepsOnly_SPEC_31) {
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

// SPEC-14: inside a burst, the consumer is asked and cancellation is checked at every token.
TEST(EngineBatch, ABurstOfAcceptedDraftsEndsAtItsToken_SPEC_14) {
  for (const bool is_cancelled : {false, true}) {
    Rig rig;
    Record record;
    GenerateOptions options = greedy(long_prompt(20, 20), 20);
    const NaiveRun expected = naive_run(options, 20, 0);
    std::vector<TokenId> truth = options.prompt;
    truth.insert(truth.end(), expected.tokens.begin(), expected.tokens.end());
    GuessProvider provider(truth, 100);
    options.draft = &provider;
    options.n_draft_tokens = 8;
    if (!is_cancelled) record.stops_at = 4;
    const RequestId id = *rig.engine->submit(options, rig.sink(record));
    record.on_token = [&](std::size_t index) {
      if (is_cancelled && index == 4) rig.engine->cancel(id, CancelReason::requested);
    };

    EXPECT_EQ(rig.run(), 2);

    EXPECT_EQ(record.tokens.size(), 5u);
    EXPECT_EQ(record.outcome().cancelled() != nullptr, is_cancelled);
    EXPECT_EQ(record.outcome().stats.cache_tokens, is_cancelled ? 20u : 25u);
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

TEST(EngineBatch, AConstraintMasksAndEndsTheRow) {
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

TEST(EngineBatch, RowsThatTogetherExceedTheBudgetWait_SCH_20_FIT13) {
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

TEST(EngineBatch, ARowThatFillsTheWholeStoreRuns_SCH_22) {
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

// There is no context shift: encoded rows stop at the context, on their last token, and what would
// pass it is refused with numbers.
TEST(EngineBatch, EncodedRowsEndAtTheContextWithLength_C22) {
  for (const std::uint8_t bits : {std::uint8_t{8}, std::uint8_t{4}}) {
    const kv::KvScheme scheme{.kind = kv::KvSchemeKind::affine_uniform,
                              .bits = bits,
                              .group = 32,
                              .start = 0,
                              .first_span = 24};
    EngineOptions limits;
    limits.context_length = 128;
    Rig rig(limits, 4096, /*has_cache=*/false, 8, nullptr, scheme);
    Record record;
    GenerateOptions options = greedy(prompt_of(100, 1), 28);
    options.sampling.ignore_eos = true;
    ASSERT_TRUE(rig.engine->submit(options, rig.sink(record)));
    rig.run();
    EXPECT_EQ(record.tokens.size(), 28u);
    ASSERT_TRUE(record.outcome().completed());
    EXPECT_EQ(record.outcome().completed()->reason, FinishReason::length);

    Record beyond;
    options.max_tokens = 200;
    EXPECT_FALSE(rig.engine->submit(options, rig.sink(beyond)));
    EXPECT_EQ(rig.engine->store().used_bytes(), 0u);
  }
}

// SCH-17: batched tokens equal each request's own, for random mixes, chunks, block sizes and
// schemes of sharing.
TEST(EngineBatch, BatchedTokensEqualTokensAlone_SCH_17) {
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

// A choice that is admitted when the prompt is half done reports all of it, or rides from the
// start.
TEST(EngineBatch, ALateChoiceStillReportsEveryPromptLogprob) {
  EngineOptions engine_options;
  engine_options.max_rows = 2;
  Rig rig(engine_options);
  Record other;
  std::vector<Record> records(2);
  std::vector<std::unique_ptr<Sink>> sinks;
  for (Record& record : records) sinks.push_back(rig.sink(record));
  GenerateOptions options = greedy(prompt_of(100, 2), 3);
  options.prompt_logprobs = 0;
  ASSERT_TRUE(rig.engine->submit(greedy(long_prompt(9, 3), 3), rig.sink(other)));
  ASSERT_TRUE(rig.engine->submit_choices(options, std::move(sinks)));
  rig.run();
  for (const Record& record : records) {
    EXPECT_EQ(record.prompt_logprobs.size(), 99u);
    EXPECT_EQ(record.tokens, naive_run(options, 3, 0).tokens);
  }
}

// A prompt of n tokens that arrives during a long prefill has its first token within ceil(n / 64) +
// 2 steps.
TEST(EngineBatch, AShortPromptIsServedDuringALongPrefill_SCH_13) {
  EngineOptions options;
  options.max_step_tokens = 256;
  Rig rig(options);
  Record big, busy, small;
  ASSERT_TRUE(rig.engine->submit(greedy(long_prompt(9, 60), 60), rig.sink(busy)));
  rig.engine->step();
  ASSERT_TRUE(rig.engine->submit(greedy(prompt_of(3500, 1), 1), rig.sink(big)));
  rig.engine->step();
  ASSERT_TRUE(rig.engine->submit(greedy(long_prompt(120, 2), 2), rig.sink(small)));
  for (int i = 0; i < 4; ++i) rig.engine->step();
  EXPECT_GE(small.tokens.size(), 1u);
  EXPECT_FALSE(big.is_over());
  EXPECT_EQ(busy.tokens.size(), 6u) << "an active row is fed in every step (SCH-10)";
  rig.run();
}

}  // namespace
}  // namespace kvasir::engine
