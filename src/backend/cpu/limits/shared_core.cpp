#include <chrono>
#include <cstdint>

#include "backend/cpu/limits.h"

namespace kvasir::backend::cpu {

#if defined(__x86_64__)
namespace {

constexpr int kSlices = 200;
constexpr std::uint64_t kRounds = 600;  // of 16 additions a chain: a slice takes some microseconds
constexpr double kClearlyLonger = 1.2;  // alone: 1.0 to 1.16

template <class F>
double seconds_of(F&& round) noexcept {
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < kRounds; ++i) round();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

double share_of_shared_time() noexcept {
  std::uint64_t a = 0, b = 0, c = 0, d = 0;
  const std::uint64_t step = 3;  // of a register: cores fold additions of constants
  int n_shared = 0;
  for (int slice = 0; slice < kSlices; ++slice) {
    const double one = seconds_of([&] {
      asm volatile(
          ".rept 16\n\tadd %1, %0\n\t"
          ".endr"
          : "+r"(a)
          : "r"(step));
    });
    const double four = seconds_of([&] {
      asm volatile(
          ".rept 16\n\tadd %4, %0\n\tadd %4, %1\n\tadd %4, %2\n\tadd %4, %3\n\t"
          ".endr"
          : "+r"(a), "+r"(b), "+r"(c), "+r"(d)
          : "r"(step));
    });
    n_shared += four > kClearlyLonger * one ? 1 : 0;
  }
  return static_cast<double>(n_shared) / kSlices;
}
#else
double share_of_shared_time() noexcept { return -1; }
#endif

}  // namespace kvasir::backend::cpu
