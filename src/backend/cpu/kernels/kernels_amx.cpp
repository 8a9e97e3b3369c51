// Tiles where they pay: matrix products of two rows and more, attention of many queries. All else,
// and what tiles cannot hold, is the AVX-512 unit's.
#include "backend/cpu/kernels/kernel_table.h"
// In this order: each builds on the ones before.
// clang-format off
#include "backend/cpu/kernels/vec_avx512.h"
#include "backend/cpu/kernels/amx_tiles.h"
#include "backend/cpu/kernels/linear_parts.inc.h"
#include "backend/cpu/kernels/linear_amx.inc.h"
#include "backend/cpu/kernels/math.inc.h"
#include "backend/cpu/kernels/attention_keys.inc.h"
#include "backend/cpu/kernels/attention_amx.inc.h"
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

void pack_tiles(const float* rows,
                std::uint32_t n_rows,
                std::uint32_t n,
                std::uint32_t step,
                std::uint16_t* out) {
  for (std::uint32_t row = 0; row < n_rows; ++row) {
    for (std::uint32_t k = 0; k < n; k += 16) {
      const F32x16 x = load(rows + std::size_t{row} * n + k);
      store_u16_n(out + std::size_t{k / step} * step * kRowAlign + row * step + k % step,
                  shift_right<16>(bits(x)), 16);
    }
  }
}

// A few pairs wait for memory whatever multiplies them.
template <class Tiles, std::uint32_t kFewestPairs>
void attention(const AttentionJob& job, const AttentionItem& item, float* scratch) {
  if (suits_tiles(job, item, kFewestPairs) && attend_on_tiles<Tiles>(job, item, scratch)) return;
  kAvx512Kernels.attention(job, item, scratch);
}

template <class Tiles, std::uint32_t kFewestPairs>
KernelTable with_tiles(const char* name, std::uint32_t fewest_rows) {
  KernelTable table = kAvx512Kernels;
  table.name = name;
  table.linear = &linear<Tiles>;
  table.pack_tiles = &pack_tiles;
  table.fewest_tile_rows = fewest_rows;
  table.attention = &attention<Tiles, kFewestPairs>;
  return table;
}

}  // namespace

// A lone row waits for memory either way, and lanes have less to set up.
const KernelTable& amx_kernels() noexcept {
  static const KernelTable table = with_tiles<HardwareTiles, 8>("amx", 2);
  return table;
}
const KernelTable& emulated_amx_kernels() noexcept {
  static const KernelTable table = with_tiles<EmulatedTiles, 1>("amx-emulated", 1);
  return table;
}

}  // namespace kvasir::backend::cpu
