#include "server/http/reply_channel.h"

#include <exception>
#include <utility>

#include "base/log.h"
#include "server/http/http_error.h"

namespace kvasir::server {

ReplyChannel::ReplyChannel(std::shared_ptr<Core> core, Strand strand, std::function<void()> wake)
    : core_(std::move(core)), strand_(std::move(strand)), wake_(std::move(wake)) {}

void ReplyChannel::start(HttpReply&& reply, bool is_stream) {
  queue_ = std::move(reply.body);
  n_pending_ += queue_.size();
  head_ = std::move(reply);
  is_stream_ = is_stream;
  phase_ = is_stream ? Phase::streaming : Phase::complete;
}

void ReplyChannel::reply(HttpReply reply) {
  std::unique_lock lock(mutex_);
  if (is_closed() || phase_ != Phase::waiting) return;
  start(std::move(reply), /*is_stream=*/false);
  schedule(std::move(lock));
}

void ReplyChannel::begin_stream(HttpReply head) {
  std::unique_lock lock(mutex_);
  if (is_closed() || phase_ != Phase::waiting) return;
  start(std::move(head), /*is_stream=*/true);
  schedule(std::move(lock));
}

void ReplyChannel::write(std::string bytes) {
  std::unique_lock lock(mutex_);
  if (is_closed() || phase_ != Phase::streaming || bytes.empty()) return;
  n_pending_ += bytes.size();
  if (queue_.empty()) {
    queue_ = std::move(bytes);
  } else {
    queue_ += bytes;
  }
  schedule(std::move(lock));
}

void ReplyChannel::end() {
  std::unique_lock lock(mutex_);
  if (is_closed() || phase_ != Phase::streaming) return;
  phase_ = Phase::complete;
  schedule(std::move(lock));
}

void ReplyChannel::abort() {
  std::unique_lock lock(mutex_);
  if (is_closed() || phase_ == Phase::complete || phase_ == Phase::aborted) return;
  phase_ = Phase::aborted;
  schedule(std::move(lock));
}

void ReplyChannel::abandon() {
  std::unique_lock lock(mutex_);
  if (is_closed() || phase_ == Phase::complete || phase_ == Phase::aborted) return;
  if (phase_ == Phase::streaming) {
    phase_ = Phase::aborted;
  } else {
    start(openai_error({}, {500, "engine_failed", "the request was dropped without an answer"}),
          /*is_stream=*/false);
  }
  schedule(std::move(lock));
}

// One waking at a time: what is written before it runs goes along.
void ReplyChannel::schedule(std::unique_lock<std::mutex> lock) {
  if (std::exchange(is_wake_posted_, true)) return;
  lock.unlock();
  core_->post(strand_, [self = shared_from_this()] {
    {
      // Also when the connection is busy sending: the end of a reply must wake it again.
      const std::lock_guard again(self->mutex_);
      self->is_wake_posted_ = false;
    }
    if (self->wake_) self->wake_();
  });
}

void ReplyChannel::on_peer_gone(std::function<void()> callback) {
  std::unique_lock lock(mutex_);
  if (!is_closed()) {
    on_peer_gone_.swap(callback);  // the old one may own an exchange: not destroyed under the lock
  } else if (is_peer_gone_) {
    lock.unlock();
    post(std::move(callback));
  }
}

void ReplyChannel::on_drained(std::function<void()> callback) {
  std::unique_lock lock(mutex_);
  if (!is_closed()) on_drained_.swap(callback);
}

// An endpoint that throws must not take the server along: its exchange breaks off.
void ReplyChannel::run_guarded(const std::weak_ptr<ReplyChannel>& channel,
                               const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& e) {
    log::error(std::string("an HTTP endpoint failed: ") + e.what());
    if (const auto alive = channel.lock()) alive->abandon();
  }
}

void ReplyChannel::post(std::function<void()> action) {
  core_->post(strand_,
              [weak = weak_from_this(), action = std::move(action)] { run_guarded(weak, action); });
}

void ReplyChannel::post_after(std::chrono::milliseconds delay, std::function<void()> action) {
  core_->post_after(strand_, delay, [weak = weak_from_this(), action = std::move(action)] {
    run_guarded(weak, action);
  });
}

ReplyChannel::Piece ReplyChannel::take() {
  std::unique_lock lock(mutex_);
  is_wake_posted_ = false;
  Piece piece;
  if (is_last_taken_) return piece;
  piece.head = std::exchange(head_, std::nullopt);
  piece.is_stream = is_stream_;
  piece.payload = std::exchange(queue_, {});
  piece.is_last = phase_ == Phase::complete;
  piece.is_abort = phase_ == Phase::aborted;
  is_last_taken_ = piece.is_last || piece.is_abort;
  return piece;
}

bool ReplyChannel::is_complete() const {
  std::unique_lock lock(mutex_);
  return phase_ == Phase::complete || phase_ == Phase::aborted;
}

void ReplyChannel::sent(std::size_t n_bytes) {
  constexpr std::size_t kHalf = kMaxPendingBytes / 2;
  const std::size_t before = n_pending_.fetch_sub(n_bytes);
  if (before < kHalf || before - n_bytes >= kHalf) return;
  std::unique_lock lock(mutex_);
  const std::function<void()> callback = on_drained_;
  lock.unlock();
  if (callback) run_guarded(weak_from_this(), callback);
}

void ReplyChannel::close(bool peer_gone) {
  std::unique_lock lock(mutex_);
  if (is_closed_.exchange(true)) return;
  is_peer_gone_ = peer_gone;
  queue_.clear();
  n_pending_ = 0;
  const auto gone_callback = std::exchange(on_peer_gone_, nullptr);
  const auto drained_callback = std::exchange(on_drained_, nullptr);
  wake_ = nullptr;
  lock.unlock();
  if (peer_gone && gone_callback) run_guarded(weak_from_this(), gone_callback);
}

}  // namespace kvasir::server
