// AVX-512 with products of bf16 pairs, for all weights that take bf16 rows and attention of
// exact keys and values; the rest is the AVX-512 unit's.
#include "backend/cpu/kernels/kernel_table.h"
// In this order: each builds on the ones before.
// clang-format off
#include "backend/cpu/kernels/vec_avx512.h"
#include "backend/cpu/kernels/linear_parts.inc.h"
#include "backend/cpu/kernels/linear_dots.inc.h"
#include "backend/cpu/kernels/linear.inc.h"
#include "backend/cpu/kernels/math.inc.h"
#include "backend/cpu/kernels/attention_keys.inc.h"
#include "backend/cpu/kernels/attention_state.inc.h"
#include "backend/cpu/kernels/attention_lanes.inc.h"
#include "backend/cpu/kernels/attention_dots.inc.h"
#include "backend/cpu/kernels/attention_direct_dots.inc.h"
#include "backend/cpu/kernels/attention_direct.inc.h"
// clang-format on

namespace kvasir::backend::cpu {
namespace {

void linear_of_pairs(const LinearJob& job,
                     std::uint32_t panel_begin,
                     std::uint32_t panel_end,
                     std::uint32_t row_begin,
                     std::uint32_t row_end,
                     float* scratch) {
  (job.x_pairs ? &linear : kAvx512Kernels.linear)(job, panel_begin, panel_end, row_begin, row_end,
                                                  scratch);
}

constexpr std::uint32_t kFewestPairs = 12;  // fewer leave lanes empty
void attention(const AttentionJob& job, const AttentionItem& item, float* scratch) {
  if (!item.is_encoded && suits_direct(job, item)) return attend_directly(job, item, scratch);
  if (suits_lanes(job, item, kFewestPairs) && attend_in_lanes<DotEngine>(job, item, scratch))
    return;
  kAvx512Kernels.attention(job, item, scratch);
}

KernelTable with_pairs() {
  KernelTable table = kAvx512Kernels;
  table.name = "avx512bf16";
  table.linear = &linear_of_pairs;
  table.pack_pairs = &pack_pairs;
  table.attention_pairs = kTileQueries;
  table.attention = &attention;
  return table;
}

}  // namespace

const KernelTable& avx512bf16_kernels() noexcept {
  static const KernelTable table = with_pairs();
  return table;
}

// The instruction's manual says so; no program of ours should be wrong where a CPU does otherwise.
bool pairs_add_in_turn() noexcept {
  std::uint32_t state = 1;
  const auto draw = [&](float(&to)[16], bool rounds) {
    for (float& x : to) {
      state = state * 1664525u + 1013904223u;
      const std::uint32_t bits = (state >> 9 & 0x807fffffu) | (120u + (state >> 28)) << 23;
      const std::uint32_t kept = rounds ? bits & 0xffff0000u : bits;
      __builtin_memcpy(&x, &kept, 4);
    }
  };
  for (int i = 0; i < 64; ++i) {
    float values[5][16];
    for (int j = 0; j < 5; ++j) draw(values[j], j > 0);
    const F32x16 sum = load(values[0]), a = load(values[1]), b = load(values[2]),
                 c = load(values[3]), d = load(values[4]);
    const F32x16 got = multiply_add(join_pair(bits(a), bits(c)), join_pair(bits(b), bits(d)), sum),
                 expected = fma(c, d, fma(a, b, sum));
    if (_mm512_cmpneq_epi32_mask(bits(got), bits(expected)) != 0) return false;
  }
  return true;
}

}  // namespace kvasir::backend::cpu
