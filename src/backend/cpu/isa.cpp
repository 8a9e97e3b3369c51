#include "backend/cpu/isa.h"

#include "backend/cpu/detail/cpu_ops.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace kvasir::backend::cpu {
namespace {

#if defined(__x86_64__)
// Tiles are usable when the CPU has them, the system saves them (XCR0 bits 17 and 18) and gives
// this process leave (Linux: arch_prctl ARCH_REQ_XCOMP_PERM for state 18).
bool ask_for_tiles() noexcept {
  constexpr unsigned kBf16Tiles = 1u << 22, kTiles = 1u << 24;  // leaf 7, edx
  constexpr unsigned kVbmi = 1u << 1, kOsxsave = 1u << 27;      // leaf 7 and 1, ecx
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & kOsxsave) == 0) return false;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  if ((d & kBf16Tiles) == 0 || (d & kTiles) == 0 || (c & kVbmi) == 0) return false;
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low >> 17 & 3u) != 3u) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool has_avx2() noexcept {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

bool has_avx512() noexcept {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

bool has_avx512bf16() noexcept {
  static const bool has_pairs = has_avx512() && __builtin_cpu_supports("avx512vbmi") &&
                                __builtin_cpu_supports("avx512bf16") && pairs_add_in_turn();
  return has_pairs;
}

// Intel's take as long for a product of pairs as for four fused multiply-adds (Sapphire Rapids, as
// measured), AMD's as for one or less.
bool gains_by_pairs() noexcept { return !__builtin_cpu_is("intel"); }

bool has_amx() noexcept {
  static const bool has_tiles = can_emulate_amx() && ask_for_tiles();
  return has_tiles;
}
#else
bool has_avx2() noexcept { return false; }
bool has_avx512() noexcept { return false; }
bool has_avx512bf16() noexcept { return false; }
bool gains_by_pairs() noexcept { return false; }
bool has_amx() noexcept { return false; }
#endif

}  // namespace

bool can_emulate_amx() noexcept {
#if defined(__x86_64__)
  return has_avx512() && __builtin_cpu_supports("avx512vbmi") &&
         __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

bool has_vnni() noexcept {
#if defined(__x86_64__)
  return has_avx512() && __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

bool has_avx_vnni() noexcept {
#if defined(__x86_64__)
  constexpr unsigned kAvxVnni = 1u << 4;  // leaf 7.1, eax
  unsigned a = 0, b = 0, c = 0, d = 0;
  return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & kAvxVnni) != 0;
#else
  return false;
#endif
}

bool has_byte_tiles() noexcept {
#if defined(__x86_64__)
  constexpr unsigned kByteTiles = 1u << 25;  // leaf 7, edx
  unsigned a = 0, b = 0, c = 0, d = 0;
  return has_amx() && has_vnni() && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
         (d & kByteTiles) != 0;
#else
  return false;
#endif
}

std::string_view name_of(Isa isa) noexcept {
  switch (isa) {
    case Isa::automatic:
      return "auto";
    case Isa::portable:
      return "portable";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::avx512bf16:
      return "avx512bf16";
    case Isa::amx:
      return "amx";
  }
  return "";
}

std::string isa_names() {
  std::string names(name_of(Isa::automatic));
  for (const Isa isa : kIsas) names += ", " + std::string(name_of(isa));
  return names;
}

Result<Isa> parse_isa(std::string_view name) {
  if (name == name_of(Isa::automatic)) return Isa::automatic;
  for (const Isa isa : kIsas)
    if (name == name_of(isa)) return isa;
  return invalid("unknown --isa '" + std::string(name) + "'; one of " + isa_names());
}

bool cpu_supports(Isa isa) noexcept {
  switch (isa) {
    case Isa::automatic:
    case Isa::portable:
      return true;
    case Isa::avx2:
      return has_avx2();
    case Isa::avx512:
      return has_avx512();
    case Isa::avx512bf16:
      return has_avx512bf16();
    case Isa::amx:
      return has_amx();
  }
  return false;
}

Isa widest_isa() noexcept {
  Isa widest = Isa::portable;
  for (const Isa isa : kIsas)
    if (cpu_supports(isa) && (isa != Isa::avx512bf16 || gains_by_pairs())) widest = isa;
  return widest;
}

}  // namespace kvasir::backend::cpu
