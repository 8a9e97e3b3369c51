// What another thread on the core costs AMX: products of tiles that are loaded for them from L1, with
// all eight tiles holding something throughout, and with operands let go (tilezero) after their last
// use. Times of a product, sorted by whether another hardware thread ran on the core around them.
//   tile_bench [SECONDS]
#include <cstdio>

#if defined(__x86_64__)
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "backend/cpu/isa.h"
#include "backend/cpu/limits.h"

namespace kvasir {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 2000, kProductsOfRound = 4;

struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

alignas(64) std::uint8_t operands[4][1024];

void products_alone() {
  for (int i = 0; i < kRounds; ++i)
    asm volatile(
        "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\ttdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\t"
        "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\ttdpbf16ps %%tmm7, %%tmm5, %%tmm3" ::
            : "memory");
}

// Two tiles by two: each operand is loaded for two products.
#define LOADS_AND_PRODUCTS(AFTER_TMM4, AFTER_TMM6, AFTER_BOTH)                            \
  asm volatile(                                                                           \
      "tileloadd (%0,%1,1), %%tmm4\n\ttileloadd 1024(%0,%1,1), %%tmm6\n\t"                \
      "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\ttileloadd 2048(%0,%1,1), %%tmm7\n\t"           \
      "tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\t" AFTER_TMM4                                   \
      "tileloadd 3072(%0,%1,1), %%tmm5\n\ttdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\t" AFTER_TMM6 \
      "tdpbf16ps %%tmm7, %%tmm5, %%tmm3\n\t" AFTER_BOTH                                   \
      :                                                                                   \
      : "r"(operands), "r"(std::size_t{64})                                               \
      : "memory")

void all_held() {
  for (int i = 0; i < kRounds; ++i) LOADS_AND_PRODUCTS("", "", "");
}

void operands_let_go() {
  for (int i = 0; i < kRounds; ++i)
    LOADS_AND_PRODUCTS("tilezero %%tmm4\n\t", "tilezero %%tmm6\n\t",
                       "tilezero %%tmm5\n\ttilezero %%tmm7");
}

struct Loop {
  const char* name;
  void (*run)();
  std::vector<double> alone, shared;  // ns a product
};

double median(std::vector<double>& values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(Loop& loop) {
  const double before = backend::cpu::share_of_shared_time();
  TileConfig config;
  asm volatile("ldtilecfg %0" : : "m"(config));
  loop.run();
  const auto begin = Clock::now();
  loop.run();
  const double ns = std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
  asm volatile("tilerelease");
  const double after = backend::cpu::share_of_shared_time();
  if (std::max(before, after) < 0.1) loop.alone.push_back(ns / kRounds / kProductsOfRound);
  if (std::min(before, after) > 0.9) loop.shared.push_back(ns / kRounds / kProductsOfRound);
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) {
  using namespace kvasir;
  if (!backend::cpu::cpu_supports(backend::cpu::Isa::amx)) return std::puts("no AMX here"), 0;
  const double seconds = argc > 1 ? std::atof(argv[1]) : 10;
  Loop loops[] = {{"products alone", &products_alone, {}, {}},
                  {"loaded, all tiles held", &all_held, {}, {}},
                  {"loaded, operands let go", &operands_let_go, {}, {}}};
  const auto begin = Clock::now();
  while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds)
    for (Loop& loop : loops) measure(loop);
  std::printf("%-24s %18s %26s\n", "ns a product, median", "alone on the core",
              "beside another thread");
  for (Loop& loop : loops)
    std::printf("%-24s %9.1f (%zu runs) %17.1f (%zu runs)\n", loop.name, median(loop.alone),
                loop.alone.size(), median(loop.shared), loop.shared.size());
}
#else
int main() { std::puts("no AMX here"); }
#endif
