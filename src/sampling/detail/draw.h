// Random draws: the Gumbel-max draw over what the filters left (SAMP-12), and XTC's coin. Private
// to sampling/.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "sampling/detail/kernels.h"

namespace kvasir::sampling::detail {

enum class Stream : std::uint32_t { draw = 0, xtc = 1 };  // SAMP-21

using ops::draw_scaled;  // argmax of x_i · scale + g_i over the tokens that are not excluded
using ops::gumbel;

// 1 / temperature, finite; temperature > 0.
float scale_of(float temperature) noexcept;
// The same draw at scale_of(temperature).
TokenId draw_token(std::span<const float> x,
                   const Peak& top,
                   float temperature,
                   std::uint64_t seed,
                   std::uint64_t position) noexcept;

// Uniform in (0, 1): word 0 of lane 0 of XTC's stream.
double xtc_uniform(std::uint64_t seed, std::uint64_t position) noexcept;

}  // namespace kvasir::sampling::detail
