// One HTTP request and the way to answer it. The connection (connection.cpp) makes exchanges and
// hands them to the Handler; endpoints answer from any thread, at once or much later. No function
// here blocks. Bytes written to a stream wait in the exchange until the peer reads: who produces
// them watches pending_bytes() and stops at half of kMaxPendingBytes (SCH-43).
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvasir::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // decoded, without the query: "/v1/models/a b"
  std::string query;   // as sent, without '?'
  Headers headers;     // names in lower case
  std::string body;
  std::string id;  // x-request-id: the client's (at most 128 visible ASCII characters), or made
  bool peer_is_loopback = false;  // also of unix sockets

  // The first of that (lower-case) name; null: none.
  const std::string* header(std::string_view name) const noexcept;
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  Headers headers = {};  // besides those that every reply carries (SRV-6, CORS)
  std::string body = {};
};

inline constexpr std::size_t kMaxPendingBytes = 1 << 20;

class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  virtual ~Exchange() = default;

  virtual const HttpRequest& request() const noexcept = 0;

  // Either one reply, or one stream: begin, writes, end. Later calls are ignored, as are all calls
  // after the peer went away.
  virtual void reply(HttpReply reply) = 0;
  virtual void begin_stream(HttpReply head) = 0;  // head.body is the first piece, maybe empty
  virtual void write(std::string bytes) = 0;
  virtual void end() = 0;    // everything written is sent; the connection may be kept
  virtual void abort() = 0;  // closes the connection after what was written, without a proper end

  virtual std::size_t pending_bytes() const noexcept = 0;  // written, not yet taken by the peer
  virtual bool is_closed() const noexcept = 0;             // the peer is gone, or all was sent
  // Called on this exchange's own strand when the peer goes away before the end (within 250 ms,
  // SRV-7), and when pending_bytes() falls below half of kMaxPendingBytes. Set before streaming.
  virtual void on_peer_gone(std::function<void()> callback) = 0;
  virtual void on_drained(std::function<void()> callback) = 0;

  // Runs on the exchange's strand: one at a time, in the order posted, never inside the caller.
  virtual void post(std::function<void()> action) = 0;
  virtual void post_after(std::chrono::milliseconds delay, std::function<void()> action) = 0;
};

using Handler = std::function<void(std::shared_ptr<Exchange>)>;

}  // namespace kvasir::server
