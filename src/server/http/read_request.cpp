#include <algorithm>
#include <utility>

#include "server/http/connection.h"
#include "server/http/request_id.h"
#include "server/http/target.h"

namespace kvasir::server {
namespace {

constexpr std::size_t kHeadRead = std::size_t{4} << 10;  // also what an idle connection holds
constexpr std::size_t kBodyRead = std::size_t{64} << 10;

std::chrono::steady_clock::time_point now() { return std::chrono::steady_clock::now(); }

}  // namespace

Task<Connection::Read> Connection::read_request(RequestParser& parser) {
  const bool has_begun = co_await await_first_byte();
  if (!has_begun) co_return Read::closed;
  phase_ = Phase::reading;
  facts_.started = now();
  facts_.id = choose_request_id(nullptr);
  facts_.headers = {{"x-request-id", facts_.id}, {"x-kvasir-version", site_->options.version}};
  const Read head = co_await read_head(parser);
  if (head != Read::whole) co_return head;
  const Read admitted = co_await admit(parser);
  if (admitted != Read::whole) co_return admitted;
  const Read body = co_await read_body(parser);
  co_return body;
}

// Skips the empty lines that some clients send between requests (RFC 9112 §2.2).
Task<bool> Connection::await_first_byte() {
  const HttpTimeouts& timeouts = site_->options.timeouts;
  phase_ = Phase::idle;
  set_deadline(now() + (is_first_ ? timeouts.read : timeouts.idle));
  for (;;) {
    const std::size_t start = std::min(in_.find_first_not_of("\r\n"), in_.size());
    in_.erase(0, start);
    if (!in_.empty()) co_return true;
    in_.shrink_to_fit();
    if (site_->is_draining) co_return false;
    const bool has_more = co_await fill(kHeadRead);
    if (!has_more) co_return false;
  }
}

Task<Connection::Read> Connection::read_head(RequestParser& parser) {
  set_deadline(now() + site_->options.timeouts.read);
  for (;;) {
    in_.erase(0, parser.feed(in_));
    if (parser.error()) co_return refuse(*parser.error());
    if (parser.has_head()) break;
    const bool has_more = co_await fill(kHeadRead);
    if (has_more) continue;
    if (!is_timed_out_) co_return Read::closed;
    co_return refuse({408, "request_timeout", "the request's headers took too long"});
  }
  if (const auto error = adopt_head(parser.head())) co_return refuse(*error);
  co_return Read::whole;
}

// Makes the request of its head; what can be known of a bad one is kept for the reply and the log.
std::optional<HttpError> Connection::adopt_head(RequestHead& head) {
  request_.method = std::move(head.method);
  request_.headers = std::move(head.headers);
  request_.peer_is_loopback = peer_.is_loopback;
  request_.id = choose_request_id(request_.header("x-request-id"));
  facts_.method = request_.method;
  facts_.id = request_.id;
  facts_.minor = head.minor;
  facts_.wants_keep_alive = head.wants_keep_alive;
  facts_.headers.front().second = request_.id;
  const Headers cors = site_->gate.reply_headers(request_);
  facts_.headers.insert(facts_.headers.end(), cors.begin(), cors.end());

  Result<Target> target = parse_target(head.target);
  if (!target) return HttpError{400, "invalid_request", target.error().what};
  request_.path = std::move(target->path);
  request_.query = std::move(target->query);
  facts_.path = request_.path;
  if (target->authority.empty()) return std::nullopt;
  // RFC 9112 §3.2.2: the absolute form's authority stands for the Host header.
  for (auto& [name, value] : request_.headers) {
    if (name == "host") value = target->authority;
  }
  return std::nullopt;
}

// Everything that needs no body, so that nobody sends one in vain.
Task<Connection::Read> Connection::admit(RequestParser& parser) {
  const RequestHead& head = parser.head();
  refusal_ = site_->gate.judge(request_, head.minor, peer_.through_loopback);
  if (refusal_) co_return Read::refused;
  if (const auto error = check_length(head)) co_return refuse(*error);
  if (head.expects_continue && !parser.is_done() && in_.empty()) {
    head_ = "HTTP/1.1 100 Continue\r\n\r\n";
    const Pieces pieces{asio::buffer(head_)};
    const bool sent = co_await send_all(pieces, 0);
    head_.clear();
    if (!sent) co_return Read::closed;
  }
  co_return Read::whole;
}

std::optional<HttpError> Connection::check_length(const RequestHead& head) const {
  const bool needs_length = request_.method == "POST" || request_.method == "PUT";
  if (needs_length && !head.content_length && !head.is_chunked) {
    return HttpError{411, "length_required", "the request has neither Content-Length nor chunks"};
  }
  if (head.content_length && *head.content_length > site_->options.max_body_bytes) {
    return HttpError{413, "request_too_large", "request body too large"};
  }
  return std::nullopt;
}

Task<Connection::Read> Connection::read_body(RequestParser& parser) {
  const TimePoint start = now();
  std::uint64_t n_received = in_.size();
  while (!parser.is_done()) {
    in_.erase(0, parser.feed(in_));
    if (parser.error()) co_return refuse(*parser.error());
    if (parser.is_done()) break;
    set_deadline(body_deadline(start, n_received));
    const std::size_t n_before = in_.size();
    const bool has_more = co_await fill(kBodyRead);
    n_received += in_.size() - n_before;
    if (has_more) continue;
    if (!is_timed_out_) co_return Read::closed;
    co_return refuse({408, "request_timeout", "the request's body took too long"});
  }
  co_return Read::whole;
}

// The earliest of: a pause as long as the read timeout; the slowest accepted average rate; the
// bound on the whole.
Connection::TimePoint Connection::body_deadline(TimePoint start, std::uint64_t n_received) const {
  const HttpTimeouts& timeouts = site_->options.timeouts;
  const std::chrono::milliseconds earned(n_received * 1000 / kMinBodyBytesPerSecond);
  return std::min(
      {now() + timeouts.read, start + timeouts.read + earned, start + timeouts.body_total});
}

// Appends up to n_bytes to in_. false: end, error or deadline.
Task<bool> Connection::fill(std::size_t n_bytes) {
  if (is_timed_out_ || is_stopped_) co_return false;
  const std::size_t n_before = in_.size();
  in_.resize(n_before + n_bytes);
  const std::size_t n =
      co_await transport_->read_some(asio::buffer(in_.data() + n_before, n_bytes));
  in_.resize(n_before + n);
  co_return n > 0;
}

Connection::Read Connection::refuse(const HttpError& error) {
  is_timed_out_ = false;  // the reply gets its own time
  refusal_ = site_->options.write_error(facts_.path, error);
  return Read::refused;
}

}  // namespace kvasir::server
