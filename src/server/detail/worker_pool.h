// WorkerPool: a few threads for work that takes longer than an I/O thread should: parsing bodies,
// rendering templates, tokenizing (SCH-16). Thread-safe.
#pragma once

#include <functional>
#include <memory>

namespace kvasir::server {

class WorkerPool {
 public:
  explicit WorkerPool(int n_threads);
  ~WorkerPool();  // finishes what was posted
  void post(std::function<void()> work);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvasir::server
