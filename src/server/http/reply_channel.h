// What an endpoint hands over for one request, on its way to the connection: a queue that joins
// small writes. Endpoint side: any thread, never blocks. Connection side (take, sent, close): its
// strand. Callbacks run on the strand, and are dropped on close (they often own the exchange).
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "server/http/core.h"
#include "server/http/exchange.h"

namespace kvasir::server {

class ReplyChannel : public std::enable_shared_from_this<ReplyChannel> {
 public:
  // What the connection has to do next; nothing set: wait.
  struct Piece {
    std::optional<HttpReply> head;  // its body is in `payload`
    bool is_stream = false;         // of unknown length
    std::string payload;
    bool is_last = false;
    bool is_abort = false;

    bool is_nothing() const noexcept { return !head && payload.empty() && !is_last && !is_abort; }
  };

  // `wake` is called on the strand when there is something to take.
  ReplyChannel(std::shared_ptr<Core> core, Strand strand, std::function<void()> wake);

  // As in Exchange.
  void reply(HttpReply reply);
  void begin_stream(HttpReply head);
  void write(std::string bytes);
  void end();
  void abort();
  void abandon();  // nobody can answer any more: 500, or the stream breaks off
  std::size_t pending_bytes() const noexcept { return n_pending_.load(); }
  bool is_closed() const noexcept { return is_closed_.load(); }
  void on_peer_gone(std::function<void()> callback);  // posted at once when it is gone already
  void on_drained(std::function<void()> callback);
  void post(std::function<void()> action);
  void post_after(std::chrono::milliseconds delay, std::function<void()> action);

  Piece take();
  bool is_complete() const;        // everything was handed over: only sending is left
  void sent(std::size_t n_bytes);  // of payload
  void close(bool peer_gone);

 private:
  enum class Phase { waiting, streaming, complete, aborted };
  void start(HttpReply&& reply, bool is_stream);  // mutex_ held
  void schedule(std::unique_lock<std::mutex> lock);
  static void run_guarded(const std::weak_ptr<ReplyChannel>& channel,
                          const std::function<void()>& action);

  const std::shared_ptr<Core> core_;
  const Strand strand_;
  std::function<void()> wake_;
  std::atomic<std::size_t> n_pending_{0};
  std::atomic<bool> is_closed_{false};

  mutable std::mutex mutex_;
  Phase phase_ = Phase::waiting;
  std::optional<HttpReply> head_;
  bool is_stream_ = false;
  std::string queue_;
  bool is_last_taken_ = false;
  bool is_peer_gone_ = false;
  bool is_wake_posted_ = false;
  std::function<void()> on_peer_gone_;
  std::function<void()> on_drained_;
};

}  // namespace kvasir::server
