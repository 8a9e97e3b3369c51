#include "ops/fused.h"

#include "ops/op_table.h"

namespace kvasir::ops {

void linear_group_composed(Device& device, const LinearGroupArgs& a) noexcept {
  std::uint32_t column = 0;
  for (const LinearPart& part : a.parts) {
    const std::uint32_t n_out = part.weight->n_out();
    device.ops().linear(
        device,
        {.x = a.x, .weight = part.weight, .bias = part.bias, .out = a.out.columns(column, n_out)});
    column += n_out;
  }
}

void gated_linear_composed(Device& device, const GatedLinearArgs& a) noexcept {
  const std::uint32_t n = a.gate_up.n_cols / 2;
  const MatView gate = a.gate_up.columns(0, n);
  device.ops().linear_group(device, {.x = a.x, .parts = a.parts, .out = a.gate_up});
  device.ops().act_mul(
      device,
      {.gate = gate, .up = a.gate_up.columns(n, n), .activation = a.activation, .out = gate});
}

void gated_mlp_composed(Device& device, const GatedMlpArgs& a) noexcept {
  device.ops().gated_linear(device, a.gated);
  device.ops().linear(device, {.x = a.gated.gate_up.columns(0, a.gated.gate_up.n_cols / 2),
                               .weight = a.down.weight,
                               .bias = a.down.bias,
                               .out = a.out});
}

void add_norm_composed(Device& device, const AddNormArgs& a) noexcept {
  device.ops().add_scaled(device, {.x = a.x, .y = a.y, .alpha = a.alpha});
  device.ops().rms_norm(
      device, {.x = a.x, .weight = a.weight, .group = a.x.n_cols, .eps = a.eps, .out = a.out});
}

void query_key_composed(Device& device, const QueryKeyArgs& a) noexcept {
  const auto prepare = [&](MatView x, const float* norm, std::uint32_t group) {
    if (norm)
      device.ops().rms_norm(device,
                            {.x = x, .weight = norm, .group = group, .eps = a.eps, .out = x});
    if (a.n_pairs > 0) {
      device.ops().rope(device, {.x = x,
                                 .head_dim = a.head_dim,
                                 .n_pairs = a.n_pairs,
                                 .interleaved = a.interleaved,
                                 .positions = a.positions,
                                 .cos = a.cos,
                                 .sin = a.sin});
    }
  };
  prepare(a.q, a.q_norm, a.q_group);
  prepare(a.k, a.k_norm, a.k_group);
  device.ops().kv_append(device, {.k = a.k, .v = a.v, .kv = a.kv});
}

void prepared_attention_composed(Device& device, const PreparedAttentionArgs& a) noexcept {
  device.ops().query_key(device, a.prepare);
  device.ops().attention(device, a.attend);
}

}  // namespace kvasir::ops
