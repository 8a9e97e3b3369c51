// One client connection: reads a request, lets the handler answer it, sends the answer, reads the
// next; pipelined requests wait in the buffer, so answers keep their order. Everything runs on its
// strand except close_if_idle() and stop(), which any thread may call. co_await stands in plain
// statements only: GCC 12 lays out the frame of `while (co_await …)` wrongly.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "server/http/reply_channel.h"
#include "server/http/reply_head.h"
#include "server/http/request_parser.h"
#include "server/http/site.h"
#include "server/http/transport.h"

namespace kvasir::server {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<Core> core,
             Strand strand,
             std::unique_ptr<Transport> transport,
             PeerInfo peer,
             std::shared_ptr<Site> site);
  ~Connection();

  static void start(std::shared_ptr<Connection> connection);
  void close_if_idle();
  void stop();

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  enum class Phase { idle, reading, serving, lingering };
  enum class Read { whole, refused, closed };

  // connection.cpp: the life of a connection.
  static Task<void> run(std::shared_ptr<Connection> self);
  Task<void> serve_requests();
  Task<bool> serve_one();  // true: another may follow
  Task<bool> answer(HttpRequest request);
  void call_handler(HttpRequest request);
  void forget();
  void shut();

  // read_request.cpp
  Task<Read> read_request(RequestParser& parser);
  Task<bool> await_first_byte();
  Task<Read> read_head(RequestParser& parser);
  Task<Read> read_body(RequestParser& parser);
  Task<Read> admit(RequestParser& parser);
  Task<bool> fill(std::size_t n_bytes);
  std::optional<HttpError> adopt_head(RequestHead& head);
  std::optional<HttpError> check_length(const RequestHead& head) const;
  Read refuse(const HttpError& error);
  TimePoint body_deadline(TimePoint start, std::uint64_t n_received) const;

  // send_reply.cpp
  Task<bool> send_refusal();
  Task<bool> pump();  // the channel's pieces until the last; true: the connection may be kept
  Task<bool> send_piece(ReplyChannel::Piece piece);
  Task<bool> send_all(Pieces pieces, std::size_t n_payload);
  Task<void> await_wake();
  void on_channel_news();
  void begin_reply(const HttpReply& reply, bool is_stream, std::size_t n_body);
  void log_access() const;

  // connection.cpp: time.
  void set_deadline(TimePoint when);
  void watch_peer(bool on);
  void arm();
  void on_timer();
  void interrupt();

  const std::shared_ptr<Core> core_;
  const Strand strand_;
  const std::unique_ptr<Transport> transport_;
  const PeerInfo peer_;
  const std::shared_ptr<Site> site_;

  Phase phase_ = Phase::idle;
  std::string in_;        // received, not yet parsed
  bool is_first_ = true;  // no request was read yet
  bool is_stopped_ = false;
  bool is_timed_out_ = false;
  bool is_peer_gone_ = false;

  // The request being read or answered.
  HttpRequest request_;
  RequestFacts facts_;
  std::optional<HttpReply> refusal_;
  std::shared_ptr<ReplyChannel> channel_;
  std::string head_;  // of the reply, until it is sent
  Framing framing_ = Framing::length;
  bool keep_ = false;
  bool drops_body_ = false;  // HEAD, 204, 304
  int status_ = 0;           // 0: no reply begun
  std::uint64_t n_sent_ = 0;

  Timer wake_;
  Timer timer_;
  TimePoint deadline_ = TimePoint::max();
  TimePoint armed_ = TimePoint::max();
  bool is_watching_ = false;
};

}  // namespace kvasir::server
