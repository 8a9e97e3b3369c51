// Tiles where they pay: products of dense weights, of quantized ones from some rows on, attention
// of many queries and of a lone one. All else, and what tiles cannot hold, is the AVX-512 unit's.
#include "backend/cpu/kernels/kernel_table.h"
// In this order: each builds on the ones before.
// clang-format off
#include "backend/cpu/kernels/vec_avx512.h"
#include "backend/cpu/kernels/amx_tiles.h"
#include "backend/cpu/kernels/linear_parts.inc.h"
#include "backend/cpu/kernels/linear_amx_shared.inc.h"
#include "backend/cpu/kernels/linear_amx_quantized.inc.h"
#include "backend/cpu/kernels/linear_amx.inc.h"
#include "backend/cpu/kernels/math.inc.h"
#include "backend/cpu/kernels/attention_keys.inc.h"
#include "backend/cpu/kernels/attention_state.inc.h"
#include "backend/cpu/kernels/attention_lanes.inc.h"
#include "backend/cpu/kernels/attention_amx.inc.h"
#include "backend/cpu/kernels/attention_lone_amx.inc.h"
// clang-format on

namespace kvasir::backend::cpu {
namespace {

template <class Tiles>
void linear(const LinearJob& job,
            std::uint32_t panel_begin,
            std::uint32_t panel_end,
            std::uint32_t row_begin,
            std::uint32_t row_end,
            float* scratch) {
  job.x_tiles ? linear_tiles<Tiles>(job, panel_begin, panel_end, row_begin, row_end, scratch)
              : kAvx512Kernels.linear(job, panel_begin, panel_end, row_begin, row_end, scratch);
}

// A row of x, rounded to bf16, into tiles: [row / 16][step][row % 16][step's elements].
void pack_tiles(const PackedLayout& w, const float* x, std::size_t row, std::uint16_t* out) {
  const std::size_t step = w.group < kStep ? w.group : kStep,
                    n_steps = std::size_t{w.group} * w.n_groups / step;
  std::uint16_t* to = out + (row / 16 * n_steps * 16 + row % 16) * step;
  for (std::size_t s = 0; s < n_steps; ++s, x += step, to += 16 * step) {
    for (std::size_t i = 0; i < step; i += 16)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i),
                          _mm512_cvtepi32_epi16(bf16_bits(load(x + i))));
  }
}

template <class Tiles, std::uint32_t kFewestPairs>
void attention(const AttentionJob& job, const AttentionItem& item, float* scratch) {
  if (suits_lone(job, item)) {
    if (attend_lone<Tiles>(job, item, scratch)) return;
  } else if (suits_lanes(job, item, kFewestPairs) &&
             attend_in_lanes<TileEngine<Tiles>>(job, item, scratch)) {
    return;
  }
  kAvx512Kernels.attention(job, item, scratch);
}

template <class Tiles, std::uint32_t kFewestPairs>
KernelTable with_tiles(const char* name, std::uint32_t fewest, std::uint32_t fewest_quantized) {
  KernelTable table = kAvx512Kernels;
  table.name = name;
  table.linear = &linear<Tiles>;
  table.pack_tiles = &pack_tiles;
  table.fewest_tile_rows = fewest;
  table.fewest_quantized_tile_rows = fewest_quantized;
  table.attention_pairs = kTileQueries;
  table.attention = &attention<Tiles, kFewestPairs>;
  return table;
}

}  // namespace

// A few rows of codes become tiles no faster than they become lanes, which have less to set up.
const KernelTable& amx_kernels() noexcept {
  static const KernelTable table = with_tiles<HardwareTiles, 8>("amx", 1, 6);
  return table;
}
const KernelTable& emulated_amx_kernels() noexcept {
  static const KernelTable table = with_tiles<EmulatedTiles, 1>("amx-emulated", 1, 1);
  return table;
}

}  // namespace kvasir::backend::cpu
