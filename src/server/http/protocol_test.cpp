// SRV-1 over real sockets: framing, limits, order, timeouts.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/log.h"
#include "server/http/testing/test_client.h"

namespace kvasir::server {
namespace {

using namespace std::chrono_literals;
using testing::get;
using testing::post;
using testing::TestClient;
using testing::TestReply;

class Protocol : public ::testing::Test {
 protected:
  Protocol() { log::set_level(log::Level::warning); }

  void serve(HttpOptions options = testing::test_options(), Handler handler = testing::echo) {
    server_ = testing::run_server(std::move(options), std::move(handler));
  }
  TestClient client() { return TestClient(server_->port()); }

  std::unique_ptr<HttpServer> server_;
};

TEST_F(Protocol, AnswersWithTheHeadersEveryReplyCarries) {
  serve();
  const TestReply reply = client().ask(get("/a%20b?q=1", "x-request-id: mine-1\r\n"));

  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body, "GET /a b?q=1 ");
  EXPECT_EQ(reply.header("x-request-id"), "mine-1");
  EXPECT_EQ(reply.header("x-kvasir-version"), "0.0-test");
  EXPECT_EQ(reply.header("content-type"), "text/plain");
  EXPECT_NE(reply.header("date").find("GMT"), std::string::npos);
}

TEST_F(Protocol, KeepsConnectionsAsTheVersionSays) {
  serve();
  TestClient kept = client();
  EXPECT_EQ(kept.ask(get("/1")).body, "GET /1? ");
  EXPECT_EQ(kept.ask(post("/2", "x")).body, "POST /2? x");
  EXPECT_EQ(kept.ask("GET /3 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").header("connection"),
            "keep-alive");
  EXPECT_EQ(kept.ask(get("/4", "Connection: close\r\n")).header("connection"), "close");
  EXPECT_TRUE(kept.is_closed_within(1s));

  TestClient old = client();
  EXPECT_EQ(old.ask("GET /5 HTTP/1.0\r\n\r\n").body, "GET /5? ");
  EXPECT_TRUE(old.is_closed_within(1s));
}

TEST_F(Protocol, PipelinedRequestsAreAnsweredInOrder) {
  // The first answer comes last in time.
  serve(testing::test_options(), [](const std::shared_ptr<Exchange>& exchange) {
    if (exchange->request().path != "/slow") return testing::echo(exchange);
    exchange->post_after(50ms, [exchange] { testing::echo(exchange); });
  });
  TestClient c = client();
  c.send(get("/slow") + post("/b", "body") + "\r\n" + get("/c"));

  EXPECT_EQ(c.read_reply().body, "GET /slow? ");
  EXPECT_EQ(c.read_reply().body, "POST /b? body");
  EXPECT_EQ(c.read_reply().body, "GET /c? ");
}

TEST_F(Protocol, HeadHasTheSameHeadersAndNoBody) {
  serve();
  TestClient c = client();
  c.send("HEAD /xy HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const TestReply head = c.read_reply(/*is_head=*/true);
  EXPECT_EQ(head.header("content-length"), std::to_string(std::string("HEAD /xy? ").size()));
  EXPECT_EQ(c.ask(get("/next")).body, "GET /next? ");
}

TEST_F(Protocol, ReadsChunkedBodies) {
  serve();
  TestClient c = client();
  c.send("POST /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel");
  std::this_thread::sleep_for(20ms);
  c.send("lo\r\n1\r\n!\r\n0\r\n\r\n");
  EXPECT_EQ(c.read_reply().body, "POST /x? hello!");
}

TEST_F(Protocol, AsksForTheBodyOfAnExpectingClient) {
  serve();
  TestClient c = client();
  const std::string head =
      "POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
  EXPECT_EQ(c.ask(head).status, 100);
  EXPECT_EQ(c.ask("ok").body, "POST /x? ok");

  HttpOptions options = testing::test_options();
  options.api_keys = {"k"};
  serve(options);
  EXPECT_EQ(client().ask(head).status, 401);  // without asking for a body in vain
}

TEST_F(Protocol, RefusesWhatIsTooLarge) {
  HttpOptions options = testing::test_options();
  options.max_body_bytes = 1000;
  serve(options);

  const TestReply claimed = client().ask(
      "POST / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n"
      "Content-Length: 1001\r\n\r\n");
  EXPECT_EQ(claimed.status, 413);
  EXPECT_EQ(claimed.header("connection"), "close");
  EXPECT_EQ(claimed.header("access-control-allow-origin"), "http://localhost");
  EXPECT_EQ(claimed.body,
            R"({"error": {"message": "request body too large", "type": "invalid_request_error", )"
            R"("code": "request_too_large", "param": null}})");
  EXPECT_EQ(client().ask(post("/", std::string(1 << 20, 'x'))).status, 413);
  EXPECT_EQ(client().ask(get("/", "x: " + std::string(70'000, 'x') + "\r\n")).status, 431);
  EXPECT_EQ(client().ask(get("/", "x: " + std::string(60'000, 'x') + "\r\n")).status, 200);
}

TEST_F(Protocol, TakesBodiesUpToTheLimit) {
  serve(testing::test_options(), [](const std::shared_ptr<Exchange>& exchange) {
    exchange->reply({.body = std::to_string(exchange->request().body.size())});
  });
  const std::string body(std::size_t{32} << 20, 'x');
  EXPECT_EQ(client().ask(post("/", body)).body, std::to_string(body.size()));
}

TEST_F(Protocol, RefusesWhatIsMalformed) {
  serve();
  const std::string host = " HTTP/1.1\r\nHost: localhost\r\n";
  EXPECT_EQ(client().ask("nonsense\r\n\r\n").status, 400);
  EXPECT_EQ(client().ask("GET /%zz" + host + "\r\n").status, 400);
  EXPECT_EQ(client().ask("GET /%00" + host + "\r\n").status, 400);
  EXPECT_EQ(client().ask("GET / HTTP/1.1\r\n\r\n").status, 400);  // no Host
  EXPECT_EQ(client().ask("POST /" + host + "\r\n").status, 411);
  EXPECT_EQ(client().ask("PUT /" + host + "\r\n").status, 411);
  EXPECT_EQ(client().ask("DELETE /" + host + "\r\n").status, 200);
  EXPECT_EQ(client().ask("POST /" + host + "Content-Length: 0\r\n\r\n").status, 200);
  EXPECT_EQ(client()
                .ask("POST /" + host + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx")
                .status,
            400);
  EXPECT_EQ(client().ask("GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n").status, 403);
}

TEST_F(Protocol, PreflightKeepsTheConnection) {
  HttpOptions options = testing::test_options();
  options.api_keys = {"k"};
  options.allowed_origins = {"http://a.test"};
  serve(options);
  TestClient c = client();

  const TestReply preflight = c.ask(
      "OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: http://a.test\r\n"
      "Access-Control-Request-Method: GET\r\n\r\n");
  const TestReply refused = c.ask(get("/v1/models", "Origin: http://a.test\r\n"));

  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.header("access-control-allow-origin"), "http://a.test");
  EXPECT_EQ(refused.status, 401);  // and the page may read why (C35)
  EXPECT_EQ(refused.header("access-control-allow-origin"), "http://a.test");
  EXPECT_EQ(refused.header("vary"), "Origin");
}

TEST_F(Protocol, CutsSlowHeaders) {
  HttpOptions options = testing::test_options();
  options.timeouts.read = 150ms;
  serve(options);
  TestClient c = client();
  const auto start = std::chrono::steady_clock::now();
  std::thread drip([&c] {  // steady progress does not help
    for (int i = 0; i < 40; ++i) {
      c.send(i == 0 ? "GET / HTTP/1.1\r\nx: " : "a");
      std::this_thread::sleep_for(10ms);
    }
  });
  const int status = c.read_reply().status;
  const auto took = std::chrono::steady_clock::now() - start;
  drip.join();

  EXPECT_EQ(status, 408);
  EXPECT_LT(took, 350ms);
  EXPECT_TRUE(client().is_closed_within(1s));  // one that says nothing at all
}

TEST_F(Protocol, CutsBodiesThatPauseOrDrip) {
  HttpOptions options = testing::test_options();
  options.timeouts.read = 150ms;
  serve(options);
  const std::string head = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n";
  EXPECT_EQ(client().ask(head + "pause").status, 408);

  TestClient c = client();
  std::thread drip([&c, &head] {
    c.send(head);
    for (int i = 0; i < 30; ++i) {  // 100 bytes a second: below the slowest rate
      c.send("a");
      std::this_thread::sleep_for(10ms);
    }
  });
  EXPECT_EQ(c.read_reply().status, 408);
  drip.join();
}

TEST_F(Protocol, ClosesIdleConnections) {
  HttpOptions options = testing::test_options();
  options.timeouts.idle = 400ms;
  serve(options);
  TestClient c = client();
  EXPECT_EQ(c.ask(get("/")).status, 200);
  EXPECT_FALSE(c.is_closed_within(20ms));
  EXPECT_TRUE(c.is_closed_within(500ms));
}

TEST_F(Protocol, AHandlerThatFailsOrForgetsGivesA500) {
  serve(testing::test_options(), [](const std::shared_ptr<Exchange>& exchange) {
    if (exchange->request().path == "/throws") throw std::runtime_error("planted");
    if (exchange->request().path == "/later") {
      exchange->post([exchange] { throw std::runtime_error("planted"); });
    }
  });
  log::set_level(log::Level::off);
  TestClient c = client();
  EXPECT_EQ(c.ask(get("/throws")).status, 500);
  EXPECT_EQ(c.ask(get("/later")).status, 500);
  EXPECT_EQ(c.ask(get("/forgets")).status, 500);
}

TEST_F(Protocol, ReplyHeadersCannotBeSplit) {
  serve(testing::test_options(), [](const std::shared_ptr<Exchange>& exchange) {
    exchange->reply({.headers = {{"x-a", "1\r\nx-b: 2"}, {"bad name", "3"}}});
  });
  const TestReply reply = client().ask(get("/"));
  EXPECT_EQ(reply.header("x-a"), "1  x-b: 2");
  EXPECT_EQ(reply.headers.count("x-b"), 0u);
  EXPECT_EQ(reply.headers.count("bad name"), 0u);
}

}  // namespace
}  // namespace kvasir::server
