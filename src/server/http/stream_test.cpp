// Streams and their readers: SRV-7, SRV-33, SRV-34, SCH-43.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "server/http/testing/test_client.h"

namespace kvasir::server {
namespace {

using namespace std::chrono_literals;
using testing::get;
using testing::TestClient;
using testing::TestReply;
using testing::within;

class Stream : public ::testing::Test {
 protected:
  Stream() { log::set_level(log::Level::warning); }
  ~Stream() override {
    server_.reset();
    exchange_.reset();
  }

  // The handler starts a stream, and the test goes on with exchange().
  void serve(HttpOptions options = testing::test_options()) {
    server_ = testing::run_server(std::move(options), [this](std::shared_ptr<Exchange> exchange) {
      exchange->on_peer_gone([this] {
        gone_at_ = std::chrono::steady_clock::now();
        ++n_gone_;
      });
      exchange->on_drained([this] { ++n_drained_; });
      if (exchange->request().path != "/wait") {
        exchange->begin_stream({.content_type = "text/event-stream", .body = ": hello\n\n"});
      }
      std::scoped_lock lock(mutex_);
      exchange_ = std::move(exchange);
    });
  }
  std::shared_ptr<Exchange> exchange() {
    std::shared_ptr<Exchange> out;
    within(5s, [&] {
      std::scoped_lock lock(mutex_);
      out = exchange_;
      return out != nullptr;
    });
    return out;
  }

  std::mutex mutex_;
  std::shared_ptr<Exchange> exchange_;
  std::atomic<int> n_gone_{0};
  std::atomic<int> n_drained_{0};
  std::atomic<std::chrono::steady_clock::time_point> gone_at_{};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(Stream, WritesOfAnyThreadArriveWholeAndInOrder) {
  serve();
  TestClient c(server_->port());
  c.send(get("/", "Origin: http://localhost\r\n"));
  const auto e = exchange();
  std::string expected = ": hello\n\n";
  for (int i = 0; i < 2000; ++i) {
    const std::string event = "data: " + std::to_string(i) + "\n\n";
    e->write(event);
    expected += event;
  }
  e->end();
  e->write("late");
  e->reply({.body = "late"});

  const TestReply reply = c.read_reply();
  EXPECT_EQ(reply.body, expected);
  EXPECT_TRUE(reply.is_complete);
  EXPECT_EQ(reply.header("content-type"), "text/event-stream");
  EXPECT_EQ(reply.header("access-control-allow-origin"), "http://localhost");
  EXPECT_TRUE(within(1s, [&] { return e->is_closed(); }));
  EXPECT_EQ(n_gone_, 0);
}

TEST_F(Stream, HeadersAndFirstBytesAreSentAtOnce) {
  serve();
  TestClient c(server_->port());
  c.send(get("/"));
  const auto e = exchange();

  std::string seen;
  EXPECT_TRUE(within(1s, [&] {
    seen += c.read_bytes(4096);
    return seen.find(": hello") != std::string::npos;
  }));
  e->end();
}

TEST_F(Stream, Http10GetsAStreamUntilTheEndOfTheConnection) {
  serve();
  TestClient c(server_->port());
  c.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const auto e = exchange();
  e->write("data: 1\n\n");
  e->end();

  const TestReply reply = c.read_reply();
  EXPECT_EQ(reply.body, ": hello\n\ndata: 1\n\n");
  EXPECT_EQ(reply.header("transfer-encoding"), "");
  EXPECT_EQ(reply.header("connection"), "close");
}

// SRV-34: what was written arrives, then the line is cut without the last chunk.
TEST_F(Stream, AbortSendsWhatWasWrittenAndEndsImproperly) {
  serve();
  TestClient c(server_->port());
  c.send(get("/"));
  const auto e = exchange();
  e->write("data: {\"error\": {}}\n\n");
  e->abort();

  const TestReply reply = c.read_reply();
  EXPECT_EQ(reply.body, ": hello\n\ndata: {\"error\": {}}\n\n");
  EXPECT_FALSE(reply.is_complete);
}

TEST_F(Stream, ASlowReaderIsSeenInPendingBytesAndTheDrainIsTold) {
  serve();
  TestClient c(server_->port(), /*receive_buffer=*/4096);
  c.send(get("/"));
  const auto e = exchange();
  const std::string event(4096, 'x');
  std::size_t n_written = 9;  // ": hello\n\n"
  const auto fill = [&] {
    while (e->pending_bytes() < kMaxPendingBytes / 2) {
      e->write(event);
      n_written += event.size();
      if (n_written > (std::size_t{64} << 20)) break;
      if (n_written % (std::size_t{256} << 10) < event.size()) std::this_thread::sleep_for(1ms);
    }
  };
  fill();  // the kernel's buffers and half a mebibyte
  std::this_thread::sleep_for(30ms);
  fill();

  EXPECT_LT(e->pending_bytes(), kMaxPendingBytes);
  EXPECT_EQ(n_gone_, 0);
  const int drained_before = n_drained_;
  std::thread ends([&] {
    EXPECT_TRUE(within(10s, [&] { return n_drained_ > drained_before; }));
    e->end();
  });
  const TestReply reply = c.read_reply();
  ends.join();
  EXPECT_EQ(reply.body.size(), n_written);
  EXPECT_TRUE(reply.is_complete);
  EXPECT_EQ(e->pending_bytes(), 0u);
}

TEST_F(Stream, APeerThatLeavesIsNoticedWhileNothingIsWritten) {
  serve();
  for (const bool by_reset : {false, true}) {
    for (const char* path : {"/wait", "/"}) {
      TestClient c(server_->port());
      c.send(get(path) + get("/pipelined"));  // unread bytes must not hide it
      const auto e = exchange();
      std::this_thread::sleep_for(20ms);
      const int n_before = n_gone_;
      const auto left_at = std::chrono::steady_clock::now();
      by_reset ? c.reset() : c.close();

      EXPECT_TRUE(within(2s, [&] { return n_gone_ > n_before; }));
      EXPECT_LT(gone_at_.load() - left_at, 250ms) << path << by_reset;
      EXPECT_TRUE(e->is_closed());
      e->write("too late");
      e->end();
      std::scoped_lock lock(mutex_);
      exchange_.reset();
    }
  }
}

TEST_F(Stream, APeerThatLeftBeforeAnybodyAskedIsToldToo) {
  serve();
  TestClient c(server_->port());
  c.send(get("/"));
  const auto e = exchange();
  c.reset();
  ASSERT_TRUE(within(1s, [&] { return e->is_closed(); }));

  std::atomic<bool> told{false};
  e->on_peer_gone([&] { told = true; });
  EXPECT_TRUE(within(1s, [&] { return told.load(); }));
}

TEST_F(Stream, AReaderThatStopsAfterTheEndIsCutOff) {
  HttpOptions options = testing::test_options();
  options.timeouts.write = 100ms;
  serve(options);
  TestClient c(server_->port(), 4096);
  c.send(get("/"));
  const auto e = exchange();
  e->write(std::string(std::size_t{16} << 20, 'x'));
  e->end();
  EXPECT_TRUE(within(3s, [&] { return e->is_closed(); }));
  EXPECT_TRUE(within(3s, [&] { return server_->n_connections() == 0; }));
}

// The write is under way, and another piece waits, when the end comes.
TEST_F(Stream, AStalledReaderIsCutOffAlsoWhenTheEndComesLate) {
  HttpOptions options = testing::test_options();
  options.timeouts.write = 100ms;
  serve(options);
  TestClient c(server_->port(), 4096);
  c.send(get("/"));
  const auto e = exchange();
  e->write(std::string(std::size_t{16} << 20, 'x'));
  std::this_thread::sleep_for(100ms);
  e->write("more");
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(e->is_closed());
  e->end();
  EXPECT_TRUE(within(3s, [&] { return e->is_closed(); }));
}

TEST_F(Stream, PostsRunInOrderAndNeverInsideTheCaller) {
  serve();
  TestClient c(server_->port());
  c.send(get("/"));
  const auto e = exchange();
  std::mutex mutex;
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) {
    e->post([&, i] {
      std::scoped_lock lock(mutex);
      order.push_back(i);
    });
  }
  std::atomic<bool> late{false};
  e->post_after(30ms, [&] { late = true; });
  EXPECT_FALSE(late);
  EXPECT_TRUE(within(2s, [&] { return late.load(); }));
  e->end();

  std::scoped_lock lock(mutex);
  ASSERT_EQ(order.size(), 100u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST_F(Stream, AHeadRequestOfAStreamEndsWithItsHeaders) {
  serve();
  TestClient c(server_->port());
  c.send("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const auto e = exchange();
  e->write("data: 1\n\n");
  e->end();
  EXPECT_EQ(c.read_reply(/*is_head=*/true).status, 200);
  EXPECT_TRUE(within(1s, [&] { return e->is_closed(); }));
  EXPECT_EQ(e->pending_bytes(), 0u);
}

}  // namespace
}  // namespace kvasir::server
