#include "backend/cpu/limits.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/detail/cpu_ops.h"
#include "backend/cpu/limits/matrix_loops.h"

namespace kvasir::backend::cpu {
namespace {

constexpr std::size_t kReadBytes = std::size_t{256}
                                   << 20;  // beyond any last-level cache that we know
constexpr int kPasses = 6;
constexpr std::size_t kFmaRounds = 20'000;
constexpr std::uint64_t kMatrixRounds = 10'000;

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

// The machine's units, driven by as many threads as are asked for.
class Probe {
 public:
  Probe(const KernelTable& kernels, Buffer memory, int n_threads)
      : kernels_(kernels),
        memory_(std::move(memory)),
        pool_(n_threads),
        n_(static_cast<std::size_t>(n_threads)),
        sinks_(n_) {
    std::memset(memory_.data(), 1, kReadBytes);  // untouched pages would all be one page of zeros
  }

  double read_gb_s(std::size_t n_threads) {
    const std::size_t share = kReadBytes / sizeof(float) / n_threads / 64 * 64;
    const double seconds = best_of(n_threads, [&](std::size_t part, float* sink) {
      *sink += kernels_.read_loop(memory_.f32() + part * share, share);
    });
    return static_cast<double>(kReadBytes) / seconds / 1e9;
  }
  double fma_gflop_s(std::size_t n_threads) {
    const double seconds =
        best_of(n_threads, [&](std::size_t, float* sink) { kernels_.fma_loop(kFmaRounds, sink); });
    return kFmaLoopFlop * kFmaRounds * static_cast<double>(n_threads) / seconds / 1e9;
  }
  double gop_s(const MatrixLoop& loop, std::size_t n_threads) {
    const double seconds =
        best_of(n_threads, [&](std::size_t, float* sink) { loop.run(kMatrixRounds, sink); });
    return loop.operations * kMatrixRounds * static_cast<double>(n_threads) / seconds / 1e9;
  }
  double shared_time() {
    std::vector<double> shares(n_);
    pool_.run([&](int part) { shares[static_cast<std::size_t>(part)] = share_of_shared_time(); });
    return std::accumulate(shares.begin(), shares.end(), 0.0) / static_cast<double>(n_);
  }
  std::size_t n_threads() const noexcept { return n_; }

 private:
  struct alignas(64) Sink {
    float lanes[16] = {};
  };
  template <class F>
  double best_of(std::size_t n_threads, F&& work) {
    return best_seconds([&] {
      if (n_threads == 1) return work(0, sinks_[0].lanes);
      pool_.run([&](int part) {
        const auto p = static_cast<std::size_t>(part);
        work(p, sinks_[p].lanes);
      });
    });
  }

  const KernelTable& kernels_;
  Buffer memory_;
  ThreadPool pool_;
  std::size_t n_;
  std::vector<Sink> sinks_;
};

}  // namespace

Limits measure_limits(int n_threads) {
  auto device = make_cpu_device({.n_threads = n_threads, .isa = Isa::automatic});
  auto memory = allocate_memory(kReadBytes);
  if (!device || !memory) return {};
  Probe probe(cpu_of(**device).kernels(), *std::move(memory), n_threads);
  const std::size_t n = probe.n_threads();
  Limits limits;
  limits.n_threads = n_threads;
  limits.read_gb_s_one = probe.read_gb_s(1);
  limits.read_gb_s = n == 1 ? limits.read_gb_s_one : probe.read_gb_s(n);
  limits.fma_gflop_s_one = probe.fma_gflop_s(1);
  limits.fma_gflop_s = n == 1 ? limits.fma_gflop_s_one : probe.fma_gflop_s(n);
  for (const MatrixLoop& loop : matrix_loops()) {
    if (!loop.is_supported()) continue;
    const double one = probe.gop_s(loop, 1);
    limits.matrix.push_back({std::string(loop.name), one, n == 1 ? one : probe.gop_s(loop, n)});
  }
  limits.shared_time = probe.shared_time();
  return limits;
}

MatrixLimit float_limit(const Limits& limits) {
  MatrixLimit fastest{"f32 FMA", limits.fma_gflop_s_one, limits.fma_gflop_s};
  for (const MatrixLimit& limit : limits.matrix) {
    const bool adds_in_order = limit.name == "amx bf16" || limit.name == "avx512-bf16";
    if (adds_in_order && limit.gop_s > fastest.gop_s) fastest = limit;
  }
  return fastest;
}

MatrixLimit byte_limit(const Limits& limits) {
  MatrixLimit fastest = float_limit(limits);
  for (const MatrixLimit& limit : limits.matrix) {
    if (limit.name.ends_with("int8") && limit.gop_s > fastest.gop_s) fastest = limit;
  }
  return fastest;
}

}  // namespace kvasir::backend::cpu
