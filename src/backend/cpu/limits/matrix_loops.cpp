#include "backend/cpu/limits/matrix_loops.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#endif

namespace kvasir::backend::cpu {

#if defined(__x86_64__)
namespace {

constexpr std::size_t kChains = 12;      // enough to hide the latency of any of them
constexpr std::uint64_t kRepeats = 100;  // of all chains in a round

bool has_vnni() noexcept { return __builtin_cpu_supports("avx512vnni") != 0; }
bool has_bf16() noexcept { return __builtin_cpu_supports("avx512bf16") != 0; }

__attribute__((target("avx512f,avx512vnni"))) void vnni_loop(std::uint64_t n_rounds,
                                                             float* sink) noexcept {
  __m512i sums[kChains];
  for (auto& s : sums) s = _mm512_set1_epi32(static_cast<int>(n_rounds));
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(static_cast<char>(n_rounds));
  for (std::uint64_t i = 0; i < n_rounds * kRepeats; ++i) {
#pragma GCC unroll 12
    for (auto& s : sums) s = _mm512_dpbusd_epi32(s, a, b);
  }
  for (const auto& s : sums) sink[0] += static_cast<float>(_mm512_cvtsi512_si32(s));
}

__attribute__((target("avx512f,avx512bf16"))) void bf16_loop(std::uint64_t n_rounds,
                                                             float* sink) noexcept {
  __m512 sums[kChains];
  for (auto& s : sums) s = _mm512_set1_ps(sink[1]);
  const __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.25f));
  const __m512bh b = _mm512_cvtne2ps_pbh(_mm512_set1_ps(1.0f), _mm512_set1_ps(-1.0f));
  for (std::uint64_t i = 0; i < n_rounds * kRepeats; ++i) {
#pragma GCC unroll 12
    for (auto& s : sums) s = _mm512_dpbf16_ps(s, a, b);
  }
  for (const auto& s : sums) sink[0] += _mm512_cvtss_f32(s);
}

// AMX: four accumulators and two operands on each side, all 16 rows of 64 bytes. Written as
// assembly: no compiler flag, and nothing that an optimiser may move.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr double kTiles = 4;

// The system lets a process use tiles when it asks.
bool may_use_tiles() noexcept {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  static const bool is_granted = ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return is_granted;
}
bool has_amx_bf16() noexcept { return __builtin_cpu_supports("amx-bf16") && may_use_tiles(); }
bool has_amx_int8() noexcept { return __builtin_cpu_supports("amx-int8") && may_use_tiles(); }

void start_tiles() noexcept {
  static const TileConfig kConfig;
  asm volatile("ldtilecfg %0" ::"m"(kConfig));
  asm volatile(
      "tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3\n\t"
      "tilezero %%tmm4\n\ttilezero %%tmm5\n\ttilezero %%tmm6\n\ttilezero %%tmm7" ::
          : "memory");
}

void amx_bf16_loop(std::uint64_t n_rounds, float*) noexcept {
  start_tiles();
  for (std::uint64_t i = 0; i < n_rounds * kRepeats; ++i) {
    asm volatile(
        "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\ttdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\t"
        "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\ttdpbf16ps %%tmm7, %%tmm5, %%tmm3" ::
            : "memory");
  }
  asm volatile("tilerelease");
}

void amx_int8_loop(std::uint64_t n_rounds, float*) noexcept {
  start_tiles();
  for (std::uint64_t i = 0; i < n_rounds * kRepeats; ++i) {
    asm volatile(
        "tdpbssd %%tmm6, %%tmm4, %%tmm0\n\ttdpbssd %%tmm7, %%tmm4, %%tmm1\n\t"
        "tdpbssd %%tmm6, %%tmm5, %%tmm2\n\ttdpbssd %%tmm7, %%tmm5, %%tmm3" ::
            : "memory");
  }
  asm volatile("tilerelease");
}

constexpr double kRepeatsF = static_cast<double>(kRepeats), kChainsF = static_cast<double>(kChains);
constexpr MatrixLoop kLoops[] = {
    {"avx512-vnni int8", kRepeatsF* kChainsF * 64 * 2, &has_vnni, &vnni_loop},
    {"avx512-bf16", kRepeatsF* kChainsF * 32 * 2, &has_bf16, &bf16_loop},
    {"amx bf16", kRepeatsF* kTiles * 16 * 16 * 32 * 2, &has_amx_bf16, &amx_bf16_loop},
    {"amx int8", kRepeatsF* kTiles * 16 * 16 * 64 * 2, &has_amx_int8, &amx_int8_loop},
};

}  // namespace

std::span<const MatrixLoop> matrix_loops() noexcept { return kLoops; }
#else
std::span<const MatrixLoop> matrix_loops() noexcept { return {}; }
#endif

}  // namespace kvasir::backend::cpu
