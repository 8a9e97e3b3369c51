// Element-wise ops, norms and rope as kernels take them: what single ops and fused ones share.
#pragma once

#include "backend/cpu/kernels/kernel_table.h"
#include "ops/elementwise.h"
#include "ops/norm.h"
#include "ops/rope.h"

namespace kvasir::backend::cpu {

// out from x and y, of x's columns.
inline RowsJob rows_job(
    ConstMatView x, ConstMatView y, MatView out, float alpha, float softcap = 0.0f) noexcept {
  return {.x = x.data,
          .x_stride = x.stride,
          .y = y.data,
          .y_stride = y.stride,
          .out = out.data,
          .out_stride = out.stride,
          .n_cols = x.n_cols,
          .alpha = alpha,
          .softcap = softcap};
}

// weight, bias: [group] or null.
inline NormJob norm_job(ConstMatView x,
                        MatView out,
                        const float* weight,
                        const float* bias,
                        std::uint32_t group,
                        float eps) noexcept {
  return {.x = x.data,
          .x_stride = x.stride,
          .out = out.data,
          .out_stride = out.stride,
          .weight = weight,
          .bias = bias,
          .n_cols = x.n_cols,
          .group = group,
          .eps = eps};
}

inline RopeJob rope_job(const ops::RopeArgs& a) noexcept {
  return {.x = a.x.data,
          .x_stride = a.x.stride,
          .positions = a.positions.data(),
          .cos = a.cos,
          .sin = a.sin,
          .n_cols = a.x.n_cols,
          .head_dim = a.head_dim,
          .n_pairs = a.n_pairs,
          .interleaved = a.interleaved};
}

}  // namespace kvasir::backend::cpu
