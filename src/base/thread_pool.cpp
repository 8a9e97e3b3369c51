#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/cgroup.h"
#include "base/check.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace kvasir {
namespace {

constexpr int kSpinsBeforeSleep = 20'000;  // about 0.2 ms: longer than the gaps inside a step
constexpr int kSpinsBeforeYield = 1'000;   // a worker that holds us up longer may want our CPU

void pause_cpu() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// One CPU of each core that is allowed, ascending.
std::vector<int> first_cpus_of_cores(const cpu_set_t& allowed) {
  std::set<std::pair<std::string, std::string>> cores;
  std::vector<int> out;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const std::string base = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    std::string package = "0", core = std::to_string(cpu);
    std::ifstream(base + "physical_package_id") >> package;
    std::ifstream(base + "core_id") >> core;
    if (cores.emplace(package, core).second) out.push_back(cpu);
  }
  return out;
}

// CPUs for a pool's workers, its owner being where it is: none in particular unless the pool has a
// thread for each core that the process may use, since one of fewer may have neighbours which the
// system can see and we cannot.
std::vector<int> cpus_of_workers(int n_threads) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return {};
  std::vector<int> cpus = first_cpus_of_cores(allowed);
  if (cpus.size() != static_cast<std::size_t>(n_threads)) return {};
  const auto here = std::find(cpus.begin(), cpus.end(), sched_getcpu());
  cpus.erase(here == cpus.end() ? cpus.begin() : here);
  return cpus;
}

void pin(std::jthread& thread, int cpu) noexcept {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  static_cast<void>(pthread_setaffinity_np(thread.native_handle(), sizeof(one), &one));
}

}  // namespace

FloatModeScope::FloatModeScope() noexcept {
#if defined(__x86_64__)
  saved_ = _mm_getcsr();
  _mm_setcsr((saved_ & ~0x6000u) | 0x8040u);  // RC = nearest, FTZ (bit 15), DAZ (bit 6)
#else
  saved_ = 0;
#endif
}

FloatModeScope::~FloatModeScope() {
#if defined(__x86_64__)
  _mm_setcsr(saved_);
#endif
}

// A part of a region belongs to whoever moves its claim from the last region's number to this
// one's: its worker, or the caller when that worker is late. A worker that comes too late finds the
// claim moved and touches nothing: the region may be over.
struct ThreadPool::Shared {
  struct alignas(64) Claim {
    std::atomic<std::uint32_t> region{0};
  };
  alignas(64) std::atomic<std::uint32_t> generation{0};
  alignas(64) std::atomic<int> n_running{0};
  Task task = nullptr;
  void* context = nullptr;
  std::atomic<bool> stopping = false;
  bool has_places = false;  // workers on CPUs of their own, as far as there are such
  std::vector<Claim> claims;
  std::vector<std::jthread> threads;

  explicit Shared(std::size_t n_parts) : claims(n_parts) {}

  void place_workers() {
    has_places = true;
    const std::vector<int> cpus = cpus_of_workers(static_cast<int>(claims.size()));
    for (std::size_t i = 0; i < cpus.size(); ++i) pin(threads[i], cpus[i]);
  }
  void run_if_unclaimed(int part, std::uint32_t region) {
    std::uint32_t before = region - 1;
    if (!claims[static_cast<std::size_t>(part)].region.compare_exchange_strong(
            before, region, std::memory_order_acq_rel, std::memory_order_relaxed))
      return;
    task(context, part);
    n_running.fetch_sub(1, std::memory_order_release);
  }
  void work(int part) {
    const FloatModeScope mode;
    std::uint32_t seen = 0;
    while (true) {
      std::uint32_t now = 0;
      for (int spin = 0; (now = generation.load(std::memory_order_acquire)) == seen; ++spin) {
        if (spin < kSpinsBeforeSleep) {
          pause_cpu();
        } else {
          generation.wait(seen, std::memory_order_acquire);
        }
      }
      seen = now;
      if (stopping.load(std::memory_order_acquire)) return;
      run_if_unclaimed(part, now);
    }
  }
};

ThreadPool::ThreadPool(int n_threads) : n_threads_(n_threads) {
  KVASIR_CHECK(n_threads >= 1) << "thread pool of " << n_threads;
  shared_ = std::make_unique<Shared>(static_cast<std::size_t>(n_threads));
  for (int part = 1; part < n_threads; ++part) {
    shared_->threads.emplace_back([shared = shared_.get(), part] { shared->work(part); });
  }
}

ThreadPool::~ThreadPool() {
  shared_->stopping = true;
  shared_->generation.fetch_add(1, std::memory_order_release);
  shared_->generation.notify_all();
}

void ThreadPool::run_erased(Task task, void* context) {
  const FloatModeScope mode;
  if (n_threads_ == 1) return task(context, 0);
  if (!shared_->has_places) shared_->place_workers();
  shared_->task = task;
  shared_->context = context;
  shared_->n_running.store(n_threads_ - 1, std::memory_order_relaxed);
  const std::uint32_t region = shared_->generation.fetch_add(1, std::memory_order_release) + 1;
  shared_->generation.notify_all();
  task(context, 0);
  for (int part = 1; part < n_threads_; ++part) shared_->run_if_unclaimed(part, region);
  for (int spin = 0; shared_->n_running.load(std::memory_order_acquire) != 0; ++spin) {
    spin < kSpinsBeforeYield ? pause_cpu() : std::this_thread::yield();
  }
}

int default_thread_count() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 1;
  const int n_cores = static_cast<int>(first_cpus_of_cores(allowed).size()),
            n = std::min(CPU_COUNT(&allowed), n_cores);
  const double limit = cgroup_cpu_limit().value_or(n);
  return std::max(1, static_cast<int>(std::min<double>(n, limit)));
}

}  // namespace kvasir
