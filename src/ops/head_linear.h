// head_linear: a product of its own for each head: out[:, h] = x[:, h] · W_hᵀ, the bits of `linear`
// on those columns. Latent attention's way into the latent (W_uk transposed, [rank, nope_dim], once
// at load) and out of it (W_uv, [v_dim, rank]).
#pragma once

#include <cstdint>
#include <span>

#include "ops/device.h"
#include "tensor/mat_view.h"

namespace kvasir::ops {

struct HeadLinearArgs {
  // Head h reads columns [h · x_step, h · x_step + n_in) and writes [h · out_step, … + n_out), so
  // that a head's other columns (its rope part) stay where they are.
  ConstMatView x;
  std::span<const PackedMatrix* const> weights;  // [n_heads], all of [n_out, n_in]
  std::uint32_t x_step = 0;                      // >= n_in
  std::uint32_t out_step = 0;                    // >= n_out
  MatView out;                                   // not x
};

// One `linear` a head: what every backend without a fused version uses.
void head_linear_composed(Device& device, const HeadLinearArgs& args) noexcept;

}  // namespace kvasir::ops
