#include "server/http/connection.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <exception>
#include <utility>

#include "base/log.h"
#include "server/http/live_exchange.h"

namespace kvasir::server {
namespace {

// How long a closed connection's last reply may take to arrive.
constexpr std::chrono::seconds kLinger{2};

}  // namespace

Connection::Connection(std::shared_ptr<Core> core,
                       Strand strand,
                       std::unique_ptr<Transport> transport,
                       PeerInfo peer,
                       std::shared_ptr<Site> site)
    : core_(std::move(core)),
      strand_(std::move(strand)),
      transport_(std::move(transport)),
      peer_(peer),
      site_(std::move(site)),
      wake_(strand_),
      timer_(strand_) {
  ++site_->n_connections;
}

Connection::~Connection() { --site_->n_connections; }

void Connection::start(std::shared_ptr<Connection> connection) {
  {
    std::scoped_lock lock(connection->site_->mutex);
    if (connection->site_->is_stopped) return;
    connection->site_->connections.emplace(connection.get(), connection);
  }
  const Strand strand = connection->strand_;
  asio::co_spawn(strand, run(std::move(connection)), asio::detached);
}

Task<void> Connection::run(std::shared_ptr<Connection> self) {
  try {
    co_await self->serve_requests();
  } catch (const std::exception& e) {
    log::error(std::string("an HTTP connection failed: ") + e.what());
  }
  self->forget();
}

void Connection::forget() {
  if (channel_) channel_->close(/*peer_gone=*/true);
  channel_ = nullptr;
  transport_->close();
  timer_.cancel();
  wake_.cancel();
  deadline_ = armed_ = TimePoint::max();
  is_stopped_ = true;
  std::scoped_lock lock(site_->mutex);
  site_->connections.erase(this);
}

Task<void> Connection::serve_requests() {
  set_deadline(std::chrono::steady_clock::now() + site_->options.timeouts.handshake);
  bool goes_on = co_await transport_->handshake();
  while (goes_on) {
    goes_on = co_await serve_one();
    is_first_ = false;
  }
  // Only after a reply is there anything to protect from an abrupt end.
  if (status_ == 0 || is_stopped_ || is_peer_gone_) co_return;
  phase_ = Phase::lingering;
  set_deadline(std::chrono::steady_clock::now() + kLinger);
  co_await transport_->linger();
}

Task<bool> Connection::serve_one() {
  const HttpOptions& options = site_->options;
  status_ = 0;
  n_sent_ = 0;
  request_ = {};
  facts_ = {};
  RequestParser parser({options.max_header_bytes, options.max_body_bytes});
  const Read read = co_await read_request(parser);
  if (read == Read::closed) co_return false;
  set_deadline(TimePoint::max());
  facts_.wants_keep_alive &= parser.is_done() && !parser.error();
  phase_ = Phase::serving;
  bool may_follow = false;
  if (read == Read::refused) {
    may_follow = co_await send_refusal();
  } else {
    request_.body = std::move(parser.body());
    may_follow = co_await answer(std::move(request_));
  }
  co_return may_follow;
}

Task<bool> Connection::answer(HttpRequest request) {
  channel_ = std::make_shared<ReplyChannel>(core_, strand_, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->on_channel_news();
  });
  watch_peer(true);
  call_handler(std::move(request));
  const bool keep = co_await pump();
  watch_peer(false);
  set_deadline(TimePoint::max());
  std::exchange(channel_, nullptr)->close(is_peer_gone_);
  log_access();
  co_return keep && !is_stopped_ && !site_->is_draining;
}

void Connection::on_channel_news() {
  wake_.cancel();
  // A write that began before the end of the reply was known gets its limit now.
  if (channel_ && channel_->is_complete())
    set_deadline(std::chrono::steady_clock::now() + site_->options.timeouts.write);
}

void Connection::call_handler(HttpRequest request) {
  auto exchange = std::make_shared<LiveExchange>(std::move(request), channel_);
  try {
    site_->handler(std::move(exchange));
  } catch (const std::exception& e) {
    log::error(std::string("the HTTP handler failed: ") + e.what());
    channel_->abandon();
  }
}

void Connection::close_if_idle() {
  asio::post(strand_, [self = shared_from_this()] {
    if (self->phase_ == Phase::idle) self->shut();
  });
}

void Connection::stop() {
  asio::post(strand_, [self = shared_from_this()] { self->shut(); });
}

void Connection::shut() {
  is_stopped_ = true;
  is_peer_gone_ |= phase_ == Phase::serving;
  interrupt();
  transport_->close();
}

void Connection::set_deadline(TimePoint when) {
  deadline_ = when;
  arm();
}

void Connection::watch_peer(bool on) {
  is_watching_ = on;
  arm();
}

// One timer for everything. It may ring early (a deadline that moved away meanwhile): on_timer then
// sets it anew, which is cheaper than setting it with every read.
void Connection::arm() {
  const auto now = std::chrono::steady_clock::now();
  const TimePoint next =
      is_watching_ ? std::min(deadline_, now + site_->options.timeouts.peer_check) : deadline_;
  if (next >= armed_) return;
  armed_ = next;
  timer_.expires_at(next);
  timer_.async_wait([weak = weak_from_this()](boost::system::error_code ec) {
    const auto self = weak.lock();
    if (self && !ec && !self->is_stopped_) self->on_timer();
  });
}

void Connection::on_timer() {
  armed_ = TimePoint::max();
  if (std::chrono::steady_clock::now() >= deadline_) {
    deadline_ = TimePoint::max();
    is_timed_out_ = true;
    interrupt();
    if (phase_ == Phase::lingering) transport_->close();
  }
  // With the whole reply in hand the sending itself finds out, and a half-closed peer gets it all.
  if (is_watching_ && channel_ && !channel_->is_complete() && transport_->is_peer_gone()) {
    is_peer_gone_ = true;
    is_watching_ = false;
    interrupt();
  }
  arm();
}

// Whatever the coroutine waits for ends now; it then looks at the flags.
void Connection::interrupt() {
  transport_->cancel();
  wake_.cancel();
}

}  // namespace kvasir::server
