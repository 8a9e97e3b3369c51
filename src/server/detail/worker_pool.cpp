#include "server/detail/worker_pool.h"

#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <utility>

namespace kvasir::server {

struct WorkerPool::Impl {
  explicit Impl(int n_threads) : pool(static_cast<std::size_t>(n_threads)) {}
  boost::asio::thread_pool pool;
};

WorkerPool::WorkerPool(int n_threads) : impl_(std::make_unique<Impl>(n_threads)) {}
WorkerPool::~WorkerPool() { impl_->pool.join(); }
void WorkerPool::post(std::function<void()> work) {
  boost::asio::post(impl_->pool, std::move(work));
}

}  // namespace kvasir::server
