// A fork-join pool with low-latency barriers: run(f) calls f(part) for part 0..n_threads-1, part 0
// on the caller, each other on its worker, or on the caller too when that worker is late: on a busy
// machine nothing waits for a thread that has not begun. Workers spin briefly between regions, then
// sleep; where there is one for each core that the process may use, each stays on its own, and what
// it touches first is near it. Every thread rounds to nearest and flushes denormals (numerics
// contract). One owner calls run(), and keeps its freedom of CPUs; not re-entrant.
#pragma once

#include <cstdint>
#include <memory>

namespace kvasir {

class ThreadPool {
 public:
  explicit ThreadPool(int n_threads);  // >= 1
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const noexcept { return n_threads_; }

  template <class F>
  void run(F&& f) {
    run_erased(
        [](void* context, int part) { (*static_cast<std::remove_reference_t<F>*>(context))(part); },
        const_cast<void*>(static_cast<const void*>(&f)));
  }

 private:
  struct Shared;
  using Task = void (*)(void* context, int part);
  void run_erased(Task task, void* context);

  int n_threads_;
  std::unique_ptr<Shared> shared_;
};

// Sets round-to-nearest, flush-to-zero and denormals-are-zero on this thread; restores on
// destruction.
class FloatModeScope {
 public:
  FloatModeScope() noexcept;
  ~FloatModeScope();
  FloatModeScope(const FloatModeScope&) = delete;
  FloatModeScope& operator=(const FloatModeScope&) = delete;

 private:
  std::uint32_t saved_;
};

// Default thread count: min(affinity mask, cgroup cpu quota, physical cores) (FIT-35).
int default_thread_count();

}  // namespace kvasir
