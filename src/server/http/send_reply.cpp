#include <algorithm>
#include <array>
#include <boost/asio/redirect_error.hpp>
#include <charconv>
#include <utility>

#include "base/log.h"
#include "server/http/connection.h"

namespace kvasir::server {
namespace {

// "1a2b\r\n" of a chunk, into `line`.
asio::const_buffer write_chunk_size(std::size_t n_bytes, std::array<char, 20>& line) {
  char* end = std::to_chars(line.data(), line.data() + 16, n_bytes, 16).ptr;
  *end++ = '\r';
  *end++ = '\n';
  return asio::buffer(line.data(), static_cast<std::size_t>(end - line.data()));
}

}  // namespace

// Decides the framing and writes the head into head_.
void Connection::begin_reply(const HttpReply& reply, bool is_stream, std::size_t n_body) {
  framing_ = Framing::length;
  if (is_stream) framing_ = facts_.minor == 0 ? Framing::until_close : Framing::chunked;
  keep_ = facts_.wants_keep_alive && framing_ != Framing::until_close && !site_->is_draining;
  drops_body_ = facts_.is_head() || has_no_body(reply.status);
  status_ = reply.status;
  head_ = write_reply_head(reply, facts_, framing_, n_body, keep_);
}

Task<bool> Connection::send_refusal() {
  const HttpReply reply = *std::exchange(refusal_, std::nullopt);
  begin_reply(reply, /*is_stream=*/false, reply.body.size());
  set_deadline(std::chrono::steady_clock::now() + site_->options.timeouts.write);
  const asio::const_buffer body = drops_body_ ? asio::const_buffer{} : asio::buffer(reply.body);
  const Pieces pieces{asio::buffer(head_), body};
  const bool sent = co_await send_all(pieces, 0);
  is_peer_gone_ = !sent;
  set_deadline(TimePoint::max());
  log_access();
  co_return sent&& keep_;
}

Task<bool> Connection::pump() {
  for (;;) {
    if (is_peer_gone_ || is_stopped_) co_return false;
    ReplyChannel::Piece piece = channel_->take();
    if (piece.is_nothing()) {
      co_await await_wake();
      continue;
    }
    const bool is_last = piece.is_last;
    const bool is_abort = piece.is_abort;
    const bool sent = co_await send_piece(std::move(piece));
    is_peer_gone_ |= !sent;
    if (!sent) co_return false;
    if (is_abort) co_return false;
    if (is_last) co_return keep_;
  }
}

Task<bool> Connection::send_piece(ReplyChannel::Piece piece) {
  if (piece.head) begin_reply(*piece.head, piece.is_stream, piece.payload.size());
  if (drops_body_) {
    channel_->sent(piece.payload.size());
    piece.payload.clear();
  }
  const bool chunked = framing_ == Framing::chunked && !drops_body_;
  std::array<char, 20> line;
  if (chunked && !piece.payload.empty()) {
    const asio::const_buffer size = write_chunk_size(piece.payload.size(), line);
    head_.append(static_cast<const char*>(size.data()), size.size());
  }
  std::string tail;
  if (chunked && !piece.payload.empty()) tail = "\r\n";
  if (chunked && piece.is_last) tail += "0\r\n\r\n";
  const std::size_t n_payload = piece.payload.size();
  const Pieces pieces{asio::buffer(head_), asio::buffer(piece.payload), asio::buffer(tail)};
  const bool sent = co_await send_all(pieces, n_payload);
  head_.clear();
  co_return sent;
}

// Sends the pieces in order and tells the channel of the payload's (the second's) progress. Once
// nothing more will be handed over, a peer that takes nothing is cut off; before that, the producer
// watches pending_bytes().
Task<bool> Connection::send_all(Pieces pieces, std::size_t n_payload) {
  std::size_t n_before_payload = pieces[0].size();
  while (asio::buffer_size(pieces) > 0) {
    if (is_peer_gone_ || is_timed_out_ || is_stopped_) co_return false;
    if (channel_ && channel_->is_complete()) {
      set_deadline(std::chrono::steady_clock::now() + site_->options.timeouts.write);
    }
    std::size_t n = co_await transport_->write_some(pieces);
    if (n == 0) co_return false;
    const std::size_t n_of_head = std::min(n, n_before_payload);
    const std::size_t n_of_payload = std::min(n - n_of_head, n_payload);
    n_before_payload -= n_of_head;
    n_payload -= n_of_payload;
    n_sent_ += n;
    if (channel_ && n_of_payload > 0) channel_->sent(n_of_payload);
    for (asio::const_buffer& piece : pieces) {
      const std::size_t n_of_piece = std::min(n, piece.size());
      piece += n_of_piece;
      n -= n_of_piece;
    }
  }
  co_return true;
}

Task<void> Connection::await_wake() {
  boost::system::error_code ec;
  wake_.expires_at(TimePoint::max());
  co_await wake_.async_wait(asio::redirect_error(kAwait, ec));
}

void Connection::log_access() const {
  constexpr int kClientGone = 499;
  const int status = is_peer_gone_ ? kClientGone : status_;
  log::info(access_line(facts_, status, std::chrono::steady_clock::now(), n_sent_));
}

}  // namespace kvasir::server
