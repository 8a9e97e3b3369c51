// A small HTTP server on 127.0.0.1 for tests: answers come from a function, and can be cut, slowed
// or made wrong. One thread a connection; every connection is closed after one reply. All threads
// end with the object.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace kvasir::hub::testing {

struct Request {
  std::string method, path;                    // path with its query
  std::map<std::string, std::string> headers;  // names in lower case
  std::string header(const std::string& name) const;
};

struct Reply {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers;  // without Content-Length
  std::string body;
  std::optional<std::size_t> cut_after = {};  // body bytes after which the connection is reset
  std::chrono::milliseconds delay{0};         // between pieces of the body
  std::size_t piece_bytes = 1 << 16;
  std::size_t content_length = 0;  // for HEAD, which has no body
};

class HttpServer {
 public:
  using Handler = std::function<Reply(const Request&)>;
  explicit HttpServer(Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;

  int port() const { return port_; }
  std::string url(const std::string& host = "127.0.0.1") const;
  std::vector<Request> requests() const;  // so far, in order
  void forget_requests();

 private:
  void accept_loop();
  void serve(int fd);
  void send_reply(int fd, const Request& request, const Reply& reply) const;

  Handler handler_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> is_stopping_{false};
  mutable std::mutex mutex_;
  std::vector<Request> requests_;
  std::vector<std::thread> connections_;
  std::thread acceptor_;
};

}  // namespace kvasir::hub::testing
