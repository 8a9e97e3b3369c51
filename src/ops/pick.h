// pick: a token of each row of scores: the highest, or a draw (SAMP-12). The definition is here,
// for sampling/ and the host's backends; a device's own version gives the same tokens of the same
// scores.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "ops/device.h"
#include "tensor/mat_view.h"
#include "tensor/pick_row.h"

namespace kvasir::ops {

struct PickArgs {
  ConstMatView scores;            // [n_rows, vocab]
  std::span<const PickRow> rows;  // [n_rows], host memory
  std::uint32_t* picked;          // [n_rows], device memory: a token, or kNoToken
};

inline constexpr float kExcluded =
    -std::numeric_limits<float>::infinity();  // a token that may not be picked

struct Peak {
  float max = kExcluded;
  std::uint32_t token = 0;  // the lowest id that has it
  bool is_finite = true;    // no NaN, no infinity in the row
};
Peak find_peak(std::span<const float> x) noexcept;

// g = −ln(−ln(1 − v)), v = min((w + 0.5)·2⁻³², 1 − 2⁻²⁴): a standard Gumbel number of a 32-bit
// word, in f64 by plain operations in one order (docs/numerics.md): the same bits wherever it is
// computed, within 2 ulp.
double gumbel(std::uint32_t word) noexcept;

// argmax of (x_i − top) · scale + g_i over the tokens that are not excluded, ties → lowest id:
// x_i − top in f32, the rest in f64. Relative to the best token left, so that however large the
// scale, the top one stays finite. top = find_peak(x), with a token left; 0 < scale < ∞.
std::uint32_t draw_scaled(std::span<const float> x,
                          const Peak& top,
                          float scale,
                          std::uint64_t seed,
                          std::uint64_t position) noexcept;

// A whole row of `pick`.
std::uint32_t pick_token(std::span<const float> scores, const PickRow& row) noexcept;

}  // namespace kvasir::ops
