#include "backend/cpu/limits.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/detail/cpu_ops.h"

namespace kvasir::backend::cpu {
namespace {

constexpr std::size_t kReadBytes = std::size_t{256}
                                   << 20;  // beyond any last-level cache that we know
constexpr int kPasses = 6;
constexpr std::size_t kFmaRounds = 20'000;

template <class F>
double best_seconds(F&& f) {
  double best = 1e9;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

}  // namespace

Limits measure_limits(int n_threads) {
  auto device = make_cpu_device({.n_threads = n_threads, .isa = Isa::automatic});
  auto memory = allocate_memory(kReadBytes);
  if (!device || !memory) return {};
  std::memset(memory->data(), 1, kReadBytes);  // untouched pages would all be one page of zeros
  const KernelTable& kernels = cpu_of(**device).kernels();
  ThreadPool pool(n_threads);
  const auto n = static_cast<std::size_t>(n_threads);
  struct alignas(64) Sink {
    float lanes[16] = {};
  };
  std::vector<Sink> sinks(n);

  Limits limits;
  const double read_s = best_seconds([&] {
    pool.run([&](int part) {
      const std::size_t share = kReadBytes / sizeof(float) / n / 64 * 64;
      const auto p = static_cast<std::size_t>(part);
      sinks[p].lanes[0] += kernels.read_loop(memory->f32() + p * share, share);
    });
  });
  limits.read_gb_s = static_cast<double>(kReadBytes) / read_s / 1e9;
  const double fma_s = best_seconds([&] {
    pool.run([&](int part) {
      kernels.fma_loop(kFmaRounds, sinks[static_cast<std::size_t>(part)].lanes);
    });
  });
  limits.fma_gflop_s = kFmaLoopFlop * kFmaRounds * static_cast<double>(n) / fma_s / 1e9;
  return limits;
}

}  // namespace kvasir::backend::cpu
