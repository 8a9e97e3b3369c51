// A raw HTTP client for tests: exactly the bytes asked for, and a server with a handler to talk to.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/server.h"

namespace kvasir::server::testing {

struct TestReply {
  int status = 0;                              // 0: the connection ended before a reply
  std::map<std::string, std::string> headers;  // names in lower case; the last of equal ones
  std::string body;
  bool is_complete = false;  // the body ended as its framing says

  std::string header(const std::string& name) const {
    const auto it = headers.find(name);
    return it == headers.end() ? "" : it->second;
  }
};

class TestClient {
 public:
  explicit TestClient(std::uint16_t port, int receive_buffer = 0);
  explicit TestClient(const std::string& unix_path);
  ~TestClient() { close(); }
  TestClient(TestClient&& other) noexcept;
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  bool is_connected() const { return fd_ >= 0; }
  void send(std::string_view bytes);
  // One reply; what follows it stays for the next call. `is_head`: it has no body.
  TestReply read_reply(bool is_head = false);
  TestReply ask(std::string_view bytes) {
    send(bytes);
    return read_reply();
  }
  std::string read_bytes(std::size_t n_at_most);  // one recv; empty: end or nothing for 5 s
  bool is_closed_within(std::chrono::milliseconds limit);  // reads and drops
  void reset();                                            // RST
  void close();
  int fd() const { return fd_; }

 private:
  bool fill();
  bool read_until(std::string_view mark, std::string& out);
  bool read_exactly(std::size_t n, std::string& out);
  bool read_chunks(std::string& out);

  int fd_ = -1;
  std::string in_;
};

// "GET /path HTTP/1.1" with Host, more header lines ("a: b\r\n") and, if given, a body.
std::string get(std::string_view path, std::string_view header_lines = "");
std::string post(std::string_view path, std::string_view body, std::string_view header_lines = "");

// Options for tests: loopback, any port.
HttpOptions test_options();
// Listens and runs; the test fails when that is impossible.
std::unique_ptr<HttpServer> run_server(HttpOptions options, Handler handler);
// Answers "METHOD path?query body".
void echo(const std::shared_ptr<Exchange>& exchange);

// True as soon as `fact` is; looks every 2 ms. The limit is that of an idle machine: a busy one, or
// a sanitizer, gets five times as long.
template <class Fact>
bool within(std::chrono::milliseconds limit, Fact fact);

bool sleep_2ms();

template <class Fact>
bool within(std::chrono::milliseconds limit, Fact fact) {
  const auto end = std::chrono::steady_clock::now() + 5 * limit;
  while (!fact()) {
    if (std::chrono::steady_clock::now() > end) return fact();
    sleep_2ms();
  }
  return true;
}

}  // namespace kvasir::server::testing
