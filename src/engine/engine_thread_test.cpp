#include "engine/engine_thread.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "engine/detail/scripted.h"

namespace kvasir::engine {
namespace {

using namespace scripted;
using namespace std::chrono_literals;

class PromiseSink final : public Sink {
 public:
  explicit PromiseSink(std::promise<Outcome> promise, std::promise<void>* first_token = nullptr)
      : promise_(std::move(promise)), first_token_(first_token) {}
  Result<SinkReply> commit(std::span<const TokenId>, std::span<const Logprobs>) override {
    if (first_token_) std::exchange(first_token_, nullptr)->set_value();
    return SinkReply::more;
  }
  void finish(Outcome outcome) noexcept override { promise_.set_value(std::move(outcome)); }

 private:
  std::promise<Outcome> promise_;
  std::promise<void>* first_token_;
};

struct Served {
  SteadyClock clock;
  Rig rig;
  std::unique_ptr<EngineThread> thread;
  explicit Served(EngineOptions options = {}) : rig(std::move(options), 4096, true, 8, &clock) {
    thread = std::make_unique<EngineThread>(std::move(rig.engine), clock);
  }
  std::future<Outcome> submit(GenerateOptions options, RequestId* id = nullptr) {
    std::promise<Outcome> promise;
    std::future<Outcome> outcome = promise.get_future();
    const auto submitted =
        thread->submit(std::move(options), std::make_unique<PromiseSink>(std::move(promise)));
    if (id && submitted) *id = *submitted;
    return outcome;
  }
};

GenerateOptions endless() {
  GenerateOptions options = greedy(prompt_of(10, 1), 4000);
  options.sampling.ignore_eos = true;
  return options;
}

TEST(EngineThread, ServesManyThreads) {
  EngineOptions options;
  options.queue_limit = 1000;
  Served served(options);
  std::vector<std::thread> clients;
  std::atomic<int> n_right{0};
  for (std::uint64_t c = 0; c < 4; ++c) {
    clients.emplace_back([&, c] {
      for (std::uint64_t i = 0; i < 10; ++i) {
        const GenerateOptions request = greedy(prompt_of(5 + i, c), 6);
        const std::size_t n_expected = naive_run(request, 6, 0).tokens.size();
        const Outcome outcome = served.submit(request).get();
        n_right += outcome.completed() && outcome.stats.generated_tokens == n_expected;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(n_right, 40);
  EXPECT_LE(served.thread->snapshot().queued, 0u);
}

TEST(EngineThread, CancelsARunningRequest_C25) {
  Served served;
  RequestId id;
  std::future<Outcome> outcome = served.submit(endless(), &id);
  std::this_thread::sleep_for(5ms);
  served.thread->cancel(id, CancelReason::consumer_closed);
  ASSERT_EQ(outcome.wait_for(10s), std::future_status::ready);
  EXPECT_EQ(outcome.get().cancelled()->reason, CancelReason::consumer_closed);
}

TEST(EngineThread, RefusesBadRequestsAtOnceAndAFullQueueThroughTheSink) {
  EngineOptions options;
  options.max_rows = 1;
  options.queue_limit = 1;
  Served served(options);
  EXPECT_EQ(
      served.thread->submit(greedy({}, 1), std::make_unique<PromiseSink>(std::promise<Outcome>()))
          .error()
          .what,
      "prompt must not be empty");

  served.thread->post([](Engine& engine) { engine.hold(); });
  std::future<Outcome> waiting = served.submit(greedy({1}, 1));
  std::future<Outcome> refused = served.submit(greedy({1}, 1));
  EXPECT_EQ(refused.get().failed()->code, "queue_full");

  served.thread->post([](Engine& engine) { engine.release_hold(); });
  EXPECT_TRUE(waiting.get().completed());
}

TEST(EngineThread, ADeadlineWakesASleepingEngine_SCH_8) {
  Served served;
  served.thread->post([](Engine& engine) { engine.hold(); });
  GenerateOptions options = greedy({1}, 1);
  options.deadline = served.clock.now() + 20ms;
  std::future<Outcome> outcome = served.submit(options);
  ASSERT_EQ(outcome.wait_for(10s), std::future_status::ready);
}

TEST(EngineThread, ShutdownWaitsForRunningRows_SCH_32) {
  Served served;
  GenerateOptions options = endless();
  options.max_tokens = 200;
  std::promise<Outcome> promise;
  std::promise<void> first_token;
  std::future<Outcome> outcome = promise.get_future();
  ASSERT_TRUE(served.thread->submit(
      options, std::make_unique<PromiseSink>(std::move(promise), &first_token)));
  first_token.get_future().wait();

  served.thread->shutdown(60s);

  EXPECT_EQ(outcome.get().stats.generated_tokens, 200u);
  const auto refused =
      served.thread->submit(greedy({1}, 1), std::make_unique<PromiseSink>(std::promise<Outcome>()));
  EXPECT_EQ(refused.error().id, "engine_closed");
}

TEST(EngineThread, ShutdownWithoutPatienceCancels_SCH_32) {
  Served served;
  std::future<Outcome> outcome = served.submit(endless());
  std::this_thread::sleep_for(5ms);
  served.thread->shutdown({});
  EXPECT_EQ(outcome.get().cancelled()->reason, CancelReason::engine_closed);
}

}  // namespace
}  // namespace kvasir::engine
