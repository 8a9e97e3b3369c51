#include "server/http/core.h"

#include <boost/asio/post.hpp>
#include <utility>

namespace kvasir::server {

void Core::post(const Strand& strand, std::function<void()> action) {
  std::shared_lock lock(mutex_);
  if (!stopped_) asio::post(strand, std::move(action));
}

void Core::post_after(const Strand& strand,
                      std::chrono::milliseconds delay,
                      std::function<void()> action) {
  std::shared_lock lock(mutex_);
  if (stopped_) return;
  auto delayed = std::make_shared<Delayed>(strand, std::move(action));
  {
    std::scoped_lock delayed_lock(delayed_mutex_);
    delayed_.insert(delayed);
  }
  delayed->timer.expires_after(delay);
  delayed->timer.async_wait([self = shared_from_this(), delayed](boost::system::error_code ec) {
    self->finish(delayed, /*run=*/!ec);
  });
}

void Core::finish(const std::shared_ptr<Delayed>& delayed, bool run) {
  {
    std::scoped_lock lock(delayed_mutex_);
    delayed_.erase(delayed);
  }
  const std::function<void()> action = std::exchange(delayed->action, nullptr);
  if (run && action) action();
}

void Core::stop() {
  {
    std::unique_lock lock(mutex_);
    stopped_ = true;
  }
  std::scoped_lock lock(delayed_mutex_);
  for (const auto& delayed : delayed_) {
    asio::post(delayed->timer.get_executor(), [delayed] { delayed->timer.cancel(); });
  }
}

}  // namespace kvasir::server
