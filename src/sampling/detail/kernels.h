// The passes over a whole row of scores [vocab]. Each has one order of operations whatever the
// instruction set (sixteen lanes, fixed), so a row's bits do not depend on the machine's vector
// width. Private to sampling/.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "ops/pick.h"

namespace kvasir::sampling::detail {

using ops::find_peak;
using ops::kExcluded;  // masked or filtered out
using ops::Peak;

// Σ exp(x_i − max), for max = the row's maximum (excluded tokens add 0).
double sum_exp(std::span<const float> x, float max) noexcept;

// Σ p_i·(x_i − max) for p the softmax of x: the entropy's negative, relative to the top token's lp.
double mean_below_max(std::span<const float> x, float max) noexcept;

// HLG with a gain of 1 (SAMP-13): with z = (x_i − max) − pivot, w = width and u = |z| − w, out_i =
//   z,                             −w ≤ z < w, or where the end in question has no β > 0;
//   ±(w + β·ln(1 + u / β)),        above with β = shoulder, below with β = toe.
// In f32, ln through log1p, so a few ulp also where u / β is small. Excluded tokens stay so; out
// may be x. Magnitudes up to 1e37, width ≥ 0.
struct Bend {
  float width, shoulder, toe, pivot;
};
void bend(std::span<const float> x, float max, const Bend& curve, std::span<float> out) noexcept;

// out_i = (x_i − max) − log_sum: the log-softmax, given log_sum = ln sum_exp(x, max).
void log_softmax(std::span<const float> x, float max, float log_sum, std::span<float> out) noexcept;
// out_i = exp of the same; 0 for excluded tokens.
void probabilities(std::span<const float> x,
                   float max,
                   float log_sum,
                   std::span<float> out) noexcept;

// For each bound, Σ p_i over the tokens with x_i ≥ bound (excluded ones never), each p_i in [0, 1]
// first rounded to a multiple of 2⁻⁵⁰. Such sums are exact while they stay below 8, so they do not
// depend on the order of addition.
inline constexpr std::size_t kBounds = 8;
std::array<double, kBounds> masses_from(std::span<const float> p,
                                        std::span<const float> x,
                                        const std::array<float, kBounds>& bounds) noexcept;
constexpr double round_mass(float p) noexcept {
  return (static_cast<double>(p) + 6.0) - 6.0;
}  // [4, 8) has ulp 2⁻⁵⁰

// The tokens with from ≤ x_i < to, ascending, into out [vocab]; returns how many.
std::size_t list_between(std::span<const float> x,
                         float from,
                         float to,
                         std::span<TokenId> out) noexcept;

// out_i = x_i where the bit is set, else excluded. Tokens past the last word are excluded.
void apply_mask(std::span<const float> x,
                std::span<const std::uint32_t> words,
                std::span<float> out) noexcept;

// Excludes everything below a place in the order (score descending, ties: lower id first).
struct Cutoff {
  float score = kExcluded;
  TokenId last = 0;  // of the tokens with exactly `score`, ids up to this one stay
};
void exclude_below(std::span<float> x, Cutoff cutoff) noexcept;
// Excludes x_i with (x_i − max) − log_sum < limit; returns how many stay.
std::size_t exclude_unlikely(std::span<float> x, float max, float log_sum, float limit) noexcept;

// Maxima of disjoint groups of at most sixteen tokens: lane l of chunk c (256 tokens) is
// groups[16·c + l]. groups.size() = 16 · ⌈n / 256⌉; groups without a token are excluded.
inline constexpr std::size_t kChunk = 256;
void group_maxima(std::span<const float> x, std::span<float> groups) noexcept;

}  // namespace kvasir::sampling::detail
