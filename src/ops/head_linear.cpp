#include "ops/head_linear.h"

#include "ops/op_table.h"

namespace kvasir::ops {

void head_linear_composed(Device& device, const HeadLinearArgs& a) noexcept {
  for (std::uint32_t h = 0; h < a.weights.size(); ++h) {
    const PackedMatrix* w = a.weights[h];
    device.ops().linear(device, {.x = a.x.columns(h * a.x_step, w->n_in()),
                                 .weight = w,
                                 .bias = nullptr,
                                 .out = a.out.columns(h * a.out_step, w->n_out())});
  }
}

}  // namespace kvasir::ops
