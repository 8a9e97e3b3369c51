// The whole server over real sockets and a tiny model: routes, streaming, disconnects, overload,
// drain and shutdown (SRV-1…8, 15…21, SCH-31…43).
#include "server/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "server/endpoints/testing/tiny_engine.h"
#include "server/http/testing/test_client.h"

namespace kvasir::server {
namespace {

using namespace std::chrono_literals;
using server::testing::get;
using server::testing::post;
using server::testing::TestClient;
using server::testing::TestReply;
using server::testing::within;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kEndless =
    R"({"prompt":"abc","max_tokens":900,"temperature":0,"ignore_eos":true,"cache":false,"stream":%s})";

// 900 tokens with 20 alternatives each are more than the buffers hold: nobody who reads nothing
// sees their end.
constexpr char kUnread[] =
    R"({"prompt":"abc","max_tokens":900,"ignore_eos":true,"logprobs":20,"n":4,"cache":false,"stream":true})";

std::string endless(bool stream) {
  std::string body = kEndless;
  body.replace(body.find("%s"), 2, stream ? "true" : "false");
  return body;
}

// Every test has a server of its own over the one engine of the process.
class ServerTest : public ::testing::Test {
 protected:
  void start(ServeOptions options = {}) {
    options.port = 0;
    options.model_id = "tiny";
    auto server = Server::start(options);
    ASSERT_TRUE(server) << server.error().what;
    server_ = *std::move(server);
    server_->serve(tiny_engine());
  }
  TestClient client() const { return TestClient(server_->port()); }
  TestReply ask(const std::string& bytes) const { return client().ask(bytes); }
  std::uint32_t rows() const {
    const engine::EngineSnapshot now = tiny_engine().snapshot();
    return now.active + now.preparing + now.queued;
  }
  std::unique_ptr<Server> server_;
};

TEST_F(ServerTest, HealthIsExactAndLoadingIs503_SRV_18) {
  ServeOptions options;
  options.port = 0;
  auto server = Server::start(options);
  ASSERT_TRUE(server);
  const TestReply loading = TestClient((*server)->port()).ask(get("/health"));
  EXPECT_EQ(loading.status, 503);
  EXPECT_EQ(loading.body, "{\"status\": \"loading\"}");
  const TestReply early = TestClient((*server)->port()).ask(post("/v1/chat/completions", "{}"));
  EXPECT_EQ(early.status, 503);
  EXPECT_EQ(early.header("retry-after"), "1");
  (*server)->serve(tiny_engine());
  EXPECT_EQ(TestClient((*server)->port()).ask(get("/health")).body, "{\"status\": \"ok\"}");
}

TEST_F(ServerTest, RoutesAnswerAndWrongMethodsSayWhatIsAllowed) {
  start();
  for (const char* path : {"/v1/models", "/v1/models/tiny", "/metrics", "/stats", "/props",
                           "/slots", "/version", "/library", "/downloads", "/fit", "/", "/chat",
                           "/assets/app.js", "/api/tags", "/api/version"})
    EXPECT_EQ(ask(get(path)).status, 200) << path;
  EXPECT_EQ(ask(get("/nowhere")).status, 404);
  EXPECT_EQ(ask(get("/v1/models/other")).status, 404);
  EXPECT_EQ(ask(get("/assets/../server.h")).status, 404);
  const TestReply wrong = ask(get("/v1/chat/completions"));
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.header("allow"), "POST");
}

TEST_F(ServerTest, BodiesThatAreNoRequestsGetTheirTexts_SRV_2) {
  start();
  const auto text = [&](const std::string& body) {
    return ask(post("/v1/chat/completions", body)).body;
  };
  EXPECT_THAT(text("{"), HasSubstr("Invalid JSON in request body: "));
  EXPECT_THAT(text("[1]"), HasSubstr("Request should be a JSON object"));
  EXPECT_THAT(text("{\"a\":\"\xff\"}"), HasSubstr("Invalid JSON in request body: "));
  EXPECT_THAT(text(std::string(129, '[')), HasSubstr("Invalid JSON in request body: "));
  EXPECT_THAT(text("{\"messages\":[]}"), HasSubstr("messages must be a non-empty array"));
}

TEST_F(ServerTest, StreamedTextEqualsTheWholeAnswer_SRV_35) {
  start();
  const std::string fields = R"("prompt":"abc","max_tokens":40,"temperature":0)";
  const TestReply whole = ask(post("/v1/completions", "{" + fields + "}"));
  ASSERT_EQ(whole.status, 200) << whole.body;
  const TestReply streamed = ask(post("/v1/completions", "{" + fields + ",\"stream\":true}"));
  EXPECT_EQ(streamed.header("content-type"), "text/event-stream");
  std::string joined;
  for (std::size_t at = 0; (at = streamed.body.find("data: {", at)) != std::string::npos; ++at) {
    const std::string data = streamed.body.substr(at + 6, streamed.body.find("\n\n", at) - at - 6);
    joined += parsed(data).find("choices")->as_array()->front().string_or("text", "");
  }
  const json::Value answer = parsed(whole.body);
  EXPECT_EQ(joined, answer.find("choices")->as_array()->front().string_or("text", "?"));
  EXPECT_TRUE(streamed.body.ends_with("data: [DONE]\n\n"));
}

TEST_F(ServerTest, AClientThatLeavesFreesItsRow_C25) {
  start();
  for (const bool stream : {true, false}) {
    for (int round = 0; round < 5; ++round) {
      TestClient one = client();
      one.send(post("/v1/completions", endless(stream)));
      ASSERT_TRUE(within(2s, [&] { return rows() > 0; }));
      one.close();
      EXPECT_TRUE(within(1s, [&] { return rows() == 0; })) << "stream " << stream;
    }
  }
}

TEST_F(ServerTest, AKeyHasNoMoreRowsThanItMayAndOthersAreServed_SCH_44) {
  ServeOptions options;
  options.api_keys = {"a", "b"};
  options.max_rows_per_key = 1;
  start(options);
  const auto short_one = [&](const char* key) {
    return ask(post("/v1/completions", R"({"prompt":"abc","max_tokens":2})",
                    std::string("x-api-key: ") + key + "\r\n"));
  };
  TestClient running = client();
  running.send(post("/v1/completions", endless(true), "x-api-key: a\r\n"));
  ASSERT_TRUE(within(2s, [&] { return rows() > 0; }));

  const TestReply refused = short_one("a");

  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(refused.body, HasSubstr("queue_full"));
  EXPECT_NE(refused.header("retry-after"), "");
  EXPECT_EQ(short_one("b").status, 200);
  running.close();
  EXPECT_TRUE(within(2s, [&] { return short_one("a").status == 200; }));
}

TEST_F(ServerTest, AReaderThatTakesNothingRestsAndEndsAlone_SCH_42_43) {
  ServeOptions options;
  options.consumer_timeout = 1500ms;
  start(options);
  TestClient idle(server_->port(), /*receive_buffer=*/2048);
  idle.send(post("/v1/completions", kUnread));
  ASSERT_TRUE(within(2s, [&] { return rows() > 0; }));
  const TestReply other =
      ask(post("/v1/completions", R"({"prompt":"b","max_tokens":8,"temperature":0})"));
  EXPECT_EQ(other.status, 200);
  EXPECT_TRUE(within(8s, [&] { return rows() == 0; })) << "the idle consumer's rows end";
}

TEST_F(ServerTest, ADeadlineDeliversWhatThereIs_SCH_41) {
  start();
  std::string body = endless(false);
  body.insert(body.size() - 1, ",\"timeout_ms\":60,\"n\":8");
  const TestReply reply = ask(post("/v1/completions", body));
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_THAT(reply.body, HasSubstr("\"finish_reason\":\"length\""));
}

TEST_F(ServerTest, DrainHoldsAndResumeReleases_SCH_31) {
  start();
  const TestReply drained = ask(post("/admin/drain", ""));
  EXPECT_EQ(drained.body, "{\"drained\":true}");
  TestClient waiting = client();
  waiting.send(post("/v1/completions", R"({"prompt":"b","max_tokens":2,"temperature":0})"));
  ASSERT_TRUE(within(2s, [&] { return tiny_engine().snapshot().queued == 1; }));
  EXPECT_EQ(ask(get("/health")).status, 200);
  EXPECT_EQ(ask(post("/admin/resume", "")).status, 200);
  EXPECT_EQ(waiting.read_reply().status, 200);
}

TEST_F(ServerTest, AFlushWaitsForRunningRowsAndHoldsTheOthers_SCH_30) {
  start();
  const auto n_cached = [] { return tiny_engine().snapshot().cache.entries; };
  const std::string waiter =
      R"({"prompt":"a waiter","max_tokens":2,"temperature":0,"cache":false})";
  ask(post("/v1/completions", R"({"prompt":"to be cached","max_tokens":2,"temperature":0})"));
  ASSERT_TRUE(within(2s, [&] { return n_cached() > 0 && rows() == 0; }));
  TestClient running(server_->port(), /*receive_buffer=*/2048);
  TestClient flushing = client(), waiting = client();
  running.send(post("/v1/completions", kUnread));
  ASSERT_TRUE(within(2s, [&] { return tiny_engine().snapshot().active > 0; }));

  EXPECT_EQ(ask(post("/admin/cache/flush", "")).body,
            R"({"durable":true,"entries":0,"bytes":0})");  // CACHE-41: keeps what is in RAM
  EXPECT_GT(n_cached(), 0u);
  flushing.send("DELETE /admin/cache HTTP/1.1\r\nHost: localhost\r\n\r\n");
  ASSERT_TRUE(within(2s, [&] { return tiny_engine().snapshot().is_held; }));
  waiting.send(post("/v1/completions", waiter));
  ASSERT_TRUE(within(2s, [&] { return tiny_engine().snapshot().queued == 1; }));
  EXPECT_GT(n_cached(), 0u);
  running.close();

  EXPECT_EQ(flushing.read_reply().body, "{\"flushed\":true}");
  EXPECT_EQ(waiting.read_reply().status, 200);
  EXPECT_EQ(n_cached(), 0u) << "empty when the answer is there";
  EXPECT_TRUE(within(2s, [&] { return !tiny_engine().snapshot().is_held; }));
}

TEST_F(ServerTest, BodiesThatAreNoJsonByTheirHeadersAre415_SRV_3) {
  start();
  const auto status = [&](const std::string& header) {
    return ask(post("/v1/completions", R"({"prompt":"b","max_tokens":1})", header + "\r\n")).status;
  };
  EXPECT_EQ(status("Content-Encoding: gzip"), 415);
  EXPECT_EQ(status("Content-Type: multipart/form-data; boundary=x"), 415);
  EXPECT_EQ(status("Content-Type: image/png"), 415);
  EXPECT_EQ(status("Content-Encoding: identity"), 200);
  EXPECT_EQ(status("Content-Type: application/x-www-form-urlencoded"), 200);  // curl -d
  EXPECT_EQ(status("Content-Type: application/json"), 200);
}

TEST_F(ServerTest, TheQueueRefusesWith429AndRetryAfter_SCH_40) {
  start();
  ask(post("/admin/drain", ""));
  const std::uint32_t limit = tiny_engine().snapshot().queue_limit;
  std::vector<TestClient> waiting;
  for (std::uint32_t i = 0; i < limit; ++i) {
    waiting.push_back(client());
    waiting.back().send(post("/v1/completions", R"({"prompt":"b","max_tokens":1})"));
  }
  ASSERT_TRUE(within(5s, [&] { return tiny_engine().snapshot().queued == limit; }));
  const TestReply refused =
      ask(post("/v1/completions", R"({"prompt":"b","max_tokens":1,"stream":true})"));
  EXPECT_EQ(refused.status, 429);
  EXPECT_NE(refused.header("retry-after"), "");
  EXPECT_THAT(refused.body, HasSubstr("\"code\":\"queue_full\""));
  ask(post("/admin/resume", ""));
  for (TestClient& one : waiting) EXPECT_EQ(one.read_reply().status, 200);
}

TEST_F(ServerTest, TooLongForTheContextIsSaidWithBothNumbers_C36) {
  start();
  const TestReply whole = ask(post("/v1/completions", R"({"prompt":"b","max_tokens":100000000})"));
  EXPECT_EQ(whole.status, 400);
  EXPECT_THAT(whole.body, HasSubstr("\"code\":\"context_over_budget\""));
  EXPECT_THAT(whole.body, HasSubstr("\"type\":\"memory_admission\""));
  const std::string prompt(2 * tiny_engine().summary().context_length, 'a');
  for (const char* stream : {"true", "false"}) {
    const TestReply longer =
        ask(post("/v1/completions", "{\"prompt\":\"" + prompt + "\",\"stream\":" + stream + "}"));
    EXPECT_EQ(longer.status, 400);
    EXPECT_THAT(longer.body, HasSubstr("\"code\":\"context_length_exceeded\""));
  }
}

TEST_F(ServerTest, AForeignHostNameIsRefused_SRV_5) {
  start();
  TestClient one = client();
  EXPECT_EQ(one.ask("GET /v1/models HTTP/1.1\r\nHost: evil.test\r\n\r\n").status, 403);
}

TEST_F(ServerTest, OtherModelsAre404WhenStrict) {
  ServeOptions options;
  options.strict_model = true;
  options.aliases = {"other-name"};
  start(options);
  const auto status = [&](const std::string& model) {
    return ask(post("/v1/completions",
                    "{\"model\":\"" + model + "\",\"prompt\":\"a\",\"max_tokens\":1}"))
        .status;
  };
  EXPECT_EQ(status("tiny"), 200);
  EXPECT_EQ(status("other-name"), 200);
  EXPECT_EQ(status("default_model"), 200);
  EXPECT_EQ(status("gpt-4o"), 404);
}

TEST_F(ServerTest, ManyStreamsAtOnceEqualTheLoneOne_C24) {
  start();
  const std::string body =
      R"({"prompt":"abcdef","max_tokens":30,"temperature":0,"ignore_eos":true})";
  const auto text = [](const TestReply& reply) {
    return parsed(reply.body).find("choices")->as_array()->front().string_or("text", "?");
  };
  const std::string alone = text(ask(post("/v1/completions", body)));
  std::vector<std::thread> threads;
  std::atomic<int> n_equal{0};
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 3; ++round) {
        TestClient rude = client();
        if ((i + round) % 3 == 0) {
          rude.send(post("/v1/completions", endless(true)));
          std::this_thread::sleep_for(5ms);
          rude.close();
        }
        n_equal += text(ask(post("/v1/completions", body))) == alone;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(n_equal, 48);
  EXPECT_TRUE(within(2s, [&] { return rows() == 0; }));
}

}  // namespace
}  // namespace kvasir::server
