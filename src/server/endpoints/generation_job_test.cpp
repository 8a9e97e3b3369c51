// A job between the engine and an exchange whose strand is slow (SCH-43).
#include "server/endpoints/generation_job.h"

#include <gtest/gtest.h>

#include <deque>
#include <thread>

#include "server/endpoints/endpoint.h"
#include "server/endpoints/testing/tiny_engine.h"
#include "server/http/testing/test_client.h"

namespace kvasir::server {
namespace {

using namespace std::chrono_literals;
using server::testing::within;

// Its actions run when the test says so; its peer takes every byte at once.
class HeldExchange final : public Exchange {
 public:
  const HttpRequest& request() const noexcept override { return request_; }
  void reply(HttpReply reply) override { add(reply.body, /*is_end=*/true); }
  void begin_stream(HttpReply head) override { add(head.body, false); }
  void write(std::string bytes) override { add(bytes, false); }
  void end() override { add({}, true); }
  void abort() override { add({}, true); }
  std::size_t pending_bytes() const noexcept override { return 0; }
  bool is_closed() const noexcept override { return false; }
  void on_peer_gone(std::function<void()>) override {}
  void on_drained(std::function<void()>) override {}
  void post(std::function<void()> action) override {
    const std::scoped_lock lock(mutex_);
    actions_.push_back(std::move(action));
  }
  void post_after(std::chrono::milliseconds, std::function<void()>) override {}

  void run_actions() {
    for (;;) {
      std::function<void()> action;
      {
        const std::scoped_lock lock(mutex_);
        if (actions_.empty()) return;
        action = std::move(actions_.front());
        actions_.pop_front();
      }
      action();
    }
  }
  bool is_ended() const { return is_ended_; }
  const std::string& body() const { return body_; }

 private:
  void add(const std::string& bytes, bool is_end) {
    body_ += bytes;
    is_ended_ |= is_end;
  }

  HttpRequest request_;
  std::mutex mutex_;
  std::deque<std::function<void()>> actions_;
  std::string body_;  // and the rest: the test's thread
  bool is_ended_ = false;
};

std::shared_ptr<HeldExchange> start_job(TinyState& tiny, std::string_view body) {
  PlanOrError plan = plan_completion(tiny.state, parsed(body));
  const auto exchange = std::make_shared<HeldExchange>();
  GenerationJob::run(tiny.state, "/v1/completions", exchange, std::get<Plan>(std::move(plan)));
  return exchange;
}

// The engine has rows and runs no step.
bool rests() {
  const auto before = tiny_engine().snapshot();
  std::this_thread::sleep_for(100ms);
  const auto now = tiny_engine().snapshot();
  return now.active > 0 && now.steps == before.steps;
}

constexpr const char* kLong =
    R"({"prompt":"abc","max_tokens":900,"ignore_eos":true,"logprobs":20,"n":4,"stream":true})";

TEST(GenerationJob, RowsRestWhileEventsWaitAndGoOnWhenTheyWereHandled_SCH_43) {
  TinyState tiny;
  const auto exchange = start_job(tiny, kLong);
  ASSERT_TRUE(within(5s, rests)) << "nobody handles the events";
  // The bytes never pass the exchange's bound, so only the job can wake the engine.
  EXPECT_TRUE(within(10s, [&] {
    exchange->run_actions();
    return exchange->is_ended();
  }));
  EXPECT_TRUE(exchange->body().ends_with("data: [DONE]\n\n"));
  EXPECT_TRUE(within(2s, [] { return tiny_engine().snapshot().active == 0; }));
}

}  // namespace
}  // namespace kvasir::server
