// 10^5 random events (submit, cancel, step, a failing kernel, pausing and failing consumers, holds)
// against a naive model: what every request must produce alone. Invariants after each event; at the
// end not one block is left over.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <memory>
#include <random>

#include "base/log.h"
#include "engine/detail/scripted.h"
#include "engine/engine.h"

namespace kvasir::engine {
namespace {

using namespace scripted;

// Proposes noise, and sometimes what the model will say.
struct NoiseProvider final : DraftProvider {
  struct Source final : DraftSource {
    explicit Source(std::uint32_t seed) : random(seed) {}
    Status propose(const DraftAsk& ask, std::vector<TokenId>& drafts) override {
      if (random() % 50 == 0) return io_error("drafter broke");
      std::vector<TokenId> all = history;
      const std::size_t n_unseen = ask.position - history.size();
      KVASIR_CHECK(n_unseen <= ask.feed.size()) << "the drafter was not told of a token";
      all.insert(all.end(), ask.feed.end() - static_cast<std::ptrdiff_t>(n_unseen), ask.feed.end());
      for (std::uint32_t i = 0; i < random() % (ask.n_max + 1); ++i) {
        const std::vector<float> logits = naive_logits(all);
        const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
        drafts.push_back(random() % 5 ? static_cast<TokenId>(best)
                                      : static_cast<TokenId>(random() % kVocab));
        all.push_back(drafts.back());
      }
      return {};
    }
    Status accept(std::span<const TokenId> committed, std::span<const float>) override {
      history.insert(history.end(), committed.begin(), committed.end());
      return {};
    }
    void forget() noexcept override {}
    std::mt19937 random;
    std::vector<TokenId> history;
  };
  std::string_view kind() const noexcept override { return "noise"; }
  std::size_t weight_bytes() const noexcept override { return 0; }
  std::uint32_t max_drafts() const noexcept override { return 8; }
  DraftPriming priming() const noexcept override { return DraftPriming::tail; }
  std::span<const std::uint32_t> tap_layers() const noexcept override { return {}; }
  bool primes_from_prefix() const noexcept override { return true; }
  Result<std::unique_ptr<DraftSource>> open() override {
    return std::unique_ptr<DraftSource>(std::make_unique<Source>(n_opened++));
  }
  std::uint32_t n_opened = 0;
};

struct Expectation {
  RequestId id;
  Record record;
  NaiveRun naive;
  bool is_cancelled = false;
  bool may_fail = false;  // a kernel failed while it ran, or its consumer does
  std::optional<KvRowId> state;
};

class Property {
 public:
  Property(std::uint32_t seed,
           std::size_t n_blocks,
           const kv::KvScheme& scheme = {},
           bool has_state = false,
           bool runs_ahead = false)
      : random_(seed), rig_(options(), n_blocks, true, 8, nullptr, scheme, has_state) {
    if (has_state) rig_.executor.max_tentative = 12;
    rig_.executor.is_behind = runs_ahead;
  }

  void run(int n_events) {
    for (int i = 0; i < n_events && !testing::Test::HasFatalFailure(); ++i) {
      const std::uint32_t dice = number(100);
      if (dice < 22)
        submit();
      else if (dice < 26)
        cancel();
      else if (dice < 29)
        toggle_pause();
      else if (dice < 30)
        hold();
      else if (dice < 31)
        rig_.executor.fails_at = rig_.executor.n_calls;  // the next step's
      else
        step();
      check();
    }
    drain();
  }
  std::size_t n_completed = 0, n_ended = 0, n_tokens = 0, n_cached = 0;
  std::uint64_t n_drafts_accepted = 0;
  std::uint32_t n_replays() const { return rig_.executor.n_replays; }
  std::uint32_t n_ahead() const { return rig_.executor.n_ahead; }

 private:
  static EngineOptions options() {
    return {.max_rows = 5,
            .max_step_tokens = 140,
            .prefill_share = 128,
            .queue_limit = 12,
            .queue_timeout = {},
            .context_length = 0,
            .eos_ids = {},
            .newline_ids = {},
            .cache_namespace = {},
            .snapshot_every = 64};
  }
  std::uint32_t number(std::uint32_t n) { return static_cast<std::uint32_t>(random_()) % n; }

  // Few roots, so that prefixes are shared; the rest differs.
  std::vector<TokenId> prompt() {
    std::vector<TokenId> out = prompt_of(number(60), number(3));
    const std::vector<TokenId> tail = prompt_of(1 + number(40), random_());
    out.insert(out.end(), tail.begin(), tail.end());
    return out;
  }

  void submit() {
    GenerateOptions o = greedy(prompt(), number(24));
    const auto n_prompt = static_cast<std::uint32_t>(o.prompt.size());
    o.prefill_chunk = number(3) ? 2048 : 1 + number(50);
    o.prompt_cache = number(5) != 0;
    o.sampling.temperature = static_cast<float>(number(2));
    o.sampling.seed = random_();
    if (number(3) == 0) o.sampling.repetition_penalty = 1.2f;
    if (number(4) == 0) o.snapshot_at = {1 + number(n_prompt), n_prompt};
    if (number(3) == 0) o.draft = &provider_;
    if (number(20) == 0) o.deadline = rig_.clock.now() + std::chrono::milliseconds(1 + number(20));
    const std::uint32_t n_choices = number(6) == 0 ? 2 + number(2) : 1;
    std::optional<KvRowId> state;
    if (n_choices == 1 && number(8) == 0) o.state = state = rig_.engine->create_state();

    std::vector<std::unique_ptr<Sink>> sinks;
    std::vector<std::unique_ptr<Expectation>> expected;
    for (std::uint32_t i = 0; i < n_choices; ++i) {
      auto e = std::make_unique<Expectation>();
      e->naive = naive_run(o, *o.max_tokens, *o.sampling.seed + i);
      e->state = state;
      if (number(10) == 0) e->record.stops_at = number(4);
      if (number(20) == 0) e->record.fails_at = number(4);
      e->may_fail = e->record.fails_at.has_value();
      sinks.push_back(rig_.sink(e->record));
      expected.push_back(std::move(e));
    }
    const auto ids = rig_.engine->submit_choices(o, std::move(sinks));
    if (!ids) {
      ASSERT_EQ(ids.error().id, "queue_full");
      if (state) {
        ASSERT_TRUE(rig_.engine->free_state(*state));
      }
      return;
    }
    for (std::uint32_t i = 0; i < n_choices; ++i) {
      expected[i]->id = (*ids)[i];
      if (o.deadline) expected[i]->is_cancelled = true;
      live_.emplace((*ids)[i].value, std::move(expected[i]));
    }
  }

  Expectation* anyone() {
    if (live_.empty()) return nullptr;
    auto at = live_.begin();
    std::advance(at, number(static_cast<std::uint32_t>(live_.size())));
    return at->second.get();
  }

  void cancel() {
    if (Expectation* e = anyone()) {
      rig_.engine->cancel(e->id, CancelReason::requested);
      e->is_cancelled = true;
    }
  }

  void toggle_pause() {
    if (Expectation* e = anyone()) e->record.is_paused = !e->record.is_paused;
  }

  void hold() {
    is_held_ = !is_held_;
    is_held_ ? rig_.engine->hold() : rig_.engine->release_hold();
  }

  void step() {
    rig_.clock.advance(std::chrono::milliseconds(1));
    const StepReport report = rig_.engine->step();
    ASSERT_LE(report.n_tokens, 140u);
    if (report.failure) {
      ASSERT_EQ(report.failure->what, "kernel failed");
      for (auto& [id, e] : live_) e->may_fail = true;
    }
  }

  void check() {
    const std::string wrong = rig_.engine->check_invariants();
    ASSERT_EQ(wrong, "");
    for (auto at = live_.begin(); at != live_.end();) {
      Expectation& e = *at->second;
      const std::vector<TokenId>& tokens = e.record.tokens;
      ASSERT_LE(tokens.size(), e.naive.tokens.size());
      ASSERT_TRUE(std::equal(tokens.begin(), tokens.end(), e.naive.tokens.begin()))
          << "another token than alone";
      if (!e.record.is_over()) {
        ++at;
        continue;
      }
      check_outcome(e);
      if (e.state) {
        ASSERT_TRUE(rig_.engine->free_state(*e.state));
      }
      at = live_.erase(at);
    }
  }

  void check_outcome(const Expectation& e) {
    const Outcome& outcome = e.record.outcome();
    const std::size_t n = e.record.tokens.size();
    ++n_ended;
    n_tokens += n;
    n_cached += outcome.stats.cached_tokens;
    n_drafts_accepted += outcome.stats.draft_accepted;
    ASSERT_EQ(outcome.stats.generated_tokens, n);
    if (const Completed* completed = outcome.completed()) {
      ++n_completed;
      const bool is_stopped = e.record.stops_at && *e.record.stops_at + 1 == n;
      if (!is_stopped) {
        ASSERT_EQ(n, e.naive.tokens.size());
      }
      ASSERT_EQ(completed->reason, is_stopped ? FinishReason::stop : e.naive.reason);
      const std::uint64_t fed = outcome.stats.prompt_tokens + n;
      ASSERT_LE(outcome.stats.cache_tokens, fed);
      ASSERT_GE(outcome.stats.cache_tokens + 1, fed);
    } else if (outcome.cancelled()) {
      ASSERT_TRUE(e.is_cancelled);
    } else if (outcome.failed()->code == "queue_timeout") {
      ASSERT_TRUE(e.is_cancelled) << "it had a deadline and waited for a row (SCH-41)";
    } else {
      ASSERT_TRUE(e.may_fail) << outcome.failed()->message;
      ASSERT_NE(outcome.failed()->code, "kv_exhausted") << "SCH-22: unreachable";
    }
  }

  void drain() {
    if (is_held_) hold();
    rig_.executor.fails_at.reset();
    for (int i = 0; i < 10000 && !live_.empty() && !testing::Test::HasFatalFailure(); ++i) {
      for (auto& [id, e] : live_) e->record.is_paused = false;
      step();
      check();
    }
    ASSERT_TRUE(live_.empty()) << "starved";
    ASSERT_FALSE(rig_.engine->has_requests());
    rig_.engine->cache()->clear();
    for (std::uint32_t pool = 0; pool < rig_.engine->store().n_pools(); ++pool)
      ASSERT_EQ(rig_.engine->store().used_blocks(pool), 0u) << "blocks leaked";
  }

  std::mt19937 random_;
  NoiseProvider provider_;  // it and the records outlive the engine
  std::map<std::uint64_t, std::unique_ptr<Expectation>> live_;
  Rig rig_;
  bool is_held_ = false;
};

// A pool that holds few rows: admission, eviction and copies of shared blocks are always near the
// limit.
TEST(EngineProperty, RandomEventsKeepEveryPromise) {
  log::set_level(log::Level::error);  // broken drafters warn
  for (const std::uint32_t seed : {1u, 2u, 3u, 4u}) {
    std::cout << "seed " << seed << "\n";
    Property property(seed, seed % 2 ? 120 : 600);
    property.run(25'000);
    if (HasFatalFailure()) break;
    std::cout << property.n_ended << " requests, " << property.n_completed << " completed, "
              << property.n_tokens << " tokens, " << property.n_cached << " cached, "
              << property.n_drafts_accepted << " drafts accepted\n";
    EXPECT_GT(property.n_completed, 1000u);
    EXPECT_GT(property.n_cached, 1000u);
    EXPECT_GT(property.n_drafts_accepted, 100u);
  }
  log::set_level(log::Level::info);
}

// Rows that cross the transition at every phase, and cached states of both forms (KV-20…25,
// CACHE-8).
TEST(EngineProperty, RandomEventsWithRowsThatBecomeEncoded) {
  log::set_level(log::Level::error);
  const kv::KvScheme scheme{.kind = kv::KvSchemeKind::affine_uniform,
                            .bits = 8,
                            .group = 32,
                            .start = 0,
                            .first_span = 24};
  for (const std::uint32_t seed : {5u, 6u}) {
    std::cout << "seed " << seed << "\n";
    Property property(seed, seed % 2 ? 200 : 800, scheme);
    property.run(15'000);
    if (HasFatalFailure()) break;
    EXPECT_GT(property.n_completed, 500u);
    EXPECT_GT(property.n_cached, 500u);
    EXPECT_GT(property.n_drafts_accepted, 50u);
  }
  log::set_level(log::Level::info);
}

// Layers that step back by a replay and are resumable at their end alone (KV-39, CACHE-15).
TEST(EngineProperty, RandomEventsWithRecurrentLayers) {
  log::set_level(log::Level::error);
  for (const std::uint32_t seed : {7u, 8u, 9u}) {
    std::cout << "seed " << seed << "\n";
    Property property(seed, seed % 2 ? 150 : 800, {}, true);
    property.run(15'000);
    if (HasFatalFailure()) break;
    EXPECT_GT(property.n_completed, 150u);
    EXPECT_GT(property.n_cached, 500u);
    EXPECT_GT(property.n_drafts_accepted, 50u);
    EXPECT_GT(property.n_replays(), 50u);
  }
  log::set_level(log::Level::info);
}

// The same, with steps launched before the last one's tokens are read (EXE-10), on every layout.
TEST(EngineProperty, RandomEventsWithLookAhead) {
  log::set_level(log::Level::error);
  const kv::KvScheme encoded{.kind = kv::KvSchemeKind::affine_uniform,
                             .bits = 8,
                             .group = 32,
                             .start = 0,
                             .first_span = 24};
  for (const std::uint32_t seed : {10u, 11u, 12u, 13u, 14u, 15u}) {
    std::cout << "seed " << seed << "\n";
    const bool has_state = seed % 3 == 0;
    Property property(seed, seed % 2 ? 150 : 800, seed % 3 == 1 ? encoded : kv::KvScheme{},
                      has_state, true);
    property.run(15'000);
    if (HasFatalFailure()) break;
    std::cout << property.n_completed << " completed, " << property.n_ahead() << " steps ahead\n";
    EXPECT_GT(property.n_completed, has_state ? 150u : 500u);
    EXPECT_GT(property.n_cached, 200u);
    EXPECT_GT(property.n_ahead(), 300u);
  }
  log::set_level(log::Level::info);
}

}  // namespace
}  // namespace kvasir::engine
