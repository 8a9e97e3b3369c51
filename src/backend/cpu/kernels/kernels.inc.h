// All kernels, in terms of the lanes that the including translation unit chose. That unit defines
// the table's name. No standard header beyond these two: an inline function of one could be emitted
// with instructions the CPU lacks.
#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels/kernel_table.h"
// In this order: each builds on the ones before.
// clang-format off
#include "backend/cpu/kernels/math.inc.h"
#include "backend/cpu/kernels/elementwise.inc.h"
#include "backend/cpu/kernels/linear_parts.inc.h"
#include "backend/cpu/kernels/linear_floats.inc.h"
#include "backend/cpu/kernels/linear.inc.h"
#include "backend/cpu/kernels/grid.inc.h"
#include "backend/cpu/kernels/linear_inputs.inc.h"
#include "backend/cpu/kernels/attention_keys.inc.h"
#include "backend/cpu/kernels/attention_state.inc.h"
#include "backend/cpu/kernels/attention_direct_floats.inc.h"
#include "backend/cpu/kernels/attention_direct.inc.h"
#include "backend/cpu/kernels/attention.inc.h"
#include "backend/cpu/kernels/kv_codes.inc.h"
#include "backend/cpu/kernels/attention_encoded.inc.h"
#include "backend/cpu/kernels/index.inc.h"
#include "backend/cpu/kernels/recurrent.inc.h"
// clang-format on

namespace kvasir::backend::cpu {
namespace {

constexpr std::size_t kFmaChains = 12;

// kFmaChains · 16 · 2 · 100 operations a round.
void fma_loop(std::size_t n_rounds, float* sink) {
  F32x16 sums[kFmaChains];
  for (auto& s : sums) s = load(sink);
  const F32x16 a = set1(0.999f), b = set1(0.001f);
  for (std::size_t i = 0; i < n_rounds * 100; ++i) {
#pragma GCC unroll 12
    for (auto& s : sums) s = fma(s, a, b);
  }
  for (auto& s : sums) store(sink, add(load(sink), s));
}

float read_loop(const float* data, std::size_t n) {
  F32x16 sums[4] = {zero(), zero(), zero(), zero()};
  for (std::size_t i = 0; i + 64 <= n; i += 64) {
#pragma GCC unroll 4
    for (std::size_t j = 0; j < 4; ++j)
      ask_ahead(reinterpret_cast<const std::uint8_t*>(data + i + 16 * j));
#pragma GCC unroll 4
    for (std::size_t j = 0; j < 4; ++j) sums[j] = add(sums[j], load(data + i + 16 * j));
  }
  return sum_lanes(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

constexpr KernelTable kTable{
    .name = KVASIR_ISA_NAME,
    .linear = &linear,
    .direct_rows = kDirectRows,
    .pack_rows = &pack_rows,
    .pack_pairs = nullptr,
    .fewest_tile_rows = 0,
    .fewest_quantized_tile_rows = 0,
    .pack_tiles = nullptr,
    .group_sums = &group_sums,
    .embed = &embed,
    .round_to_bf16 = &round_to_bf16,
    .round_to_grid = &round_to_grid,
    .store_bf16 = &store_bf16,
    .attention_pairs = kChunkQueries,
    .attention = &attention,
    .merge_tiles = &merge_tiles,
    .rms_norm = &rms_norm,
    .layer_norm = &layer_norm,
    .rope = &rope,
    .act_mul = {&act_mul<&silu>, &act_mul<&gelu>, &act_mul<&gelu_tanh>, &act_mul<&sigmoid>,
                &act_mul<&identity>, &clamped_swiglu},
    .gate_rows = &gate_rows,
    .add_scaled = &add_scaled,
    .scale = &scale,
    .exp = &exp_row,
    .l2_norm = &l2_norm,
    .causal_conv = &causal_conv,
    .delta_gates = &delta_gates,
    .gated_delta = &gated_delta,
    .index_scores = &index_scores,
    .fma_loop = &fma_loop,
    .read_loop = &read_loop,
};

}  // namespace
}  // namespace kvasir::backend::cpu
