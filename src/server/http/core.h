// The I/O context, its strands, and actions that wait for their time. Shared by the server and
// every connection and exchange, so that a late call from an engine thread always finds it alive.
// Thread-safe; after stop() actions are dropped, which also breaks cycles of ownership.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_set>

namespace kvasir::server {

namespace asio = boost::asio;
using Strand = asio::strand<asio::io_context::executor_type>;
template <class T>
using Task = asio::awaitable<T, Strand>;
inline constexpr asio::use_awaitable_t<Strand> kAwait{};
using Timer = asio::basic_waitable_timer<std::chrono::steady_clock,
                                         asio::wait_traits<std::chrono::steady_clock>,
                                         Strand>;

class Core : public std::enable_shared_from_this<Core> {
 public:
  explicit Core(int n_threads) : io_(n_threads) {}

  asio::io_context& io() noexcept { return io_; }
  Strand make_strand() { return asio::make_strand(io_); }

  void post(const Strand& strand, std::function<void()> action);
  void post_after(const Strand& strand,
                  std::chrono::milliseconds delay,
                  std::function<void()> action);
  void stop();  // waiting actions are dropped, not run

 private:
  struct Delayed {
    Delayed(const Strand& strand, std::function<void()> what)
        : timer(strand), action(std::move(what)) {}
    Timer timer;
    std::function<void()> action;
  };
  void finish(const std::shared_ptr<Delayed>& delayed, bool run);

  asio::io_context io_;
  std::shared_mutex mutex_;  // exclusive: stopped_ changes
  bool stopped_ = false;
  std::mutex delayed_mutex_;
  std::unordered_set<std::shared_ptr<Delayed>> delayed_;  // co-owned by their timer handlers
};

}  // namespace kvasir::server
