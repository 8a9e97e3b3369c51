// Recurrent layers: threads take channels of the convolution and value heads of the delta rule,
// each for all tokens of a row in order.
#include "backend/cpu/detail/cpu_ops.h"

namespace kvasir::backend::cpu {

void l2_norm(ops::Device& device, const ops::L2NormArgs& a) noexcept {
  CpuDevice& cpu = cpu_of(device);
  const L2NormJob job{.x = a.x.data,
                      .x_stride = a.x.stride,
                      .out = a.out.data,
                      .out_stride = a.out.stride,
                      .n_cols = a.x.n_cols,
                      .group = a.group,
                      .eps = a.eps,
                      .scale = a.scale};
  cpu.split(a.x.n_rows, std::size_t{a.x.n_rows} * a.x.n_cols,
            [&](std::size_t begin, std::size_t end, int) {
              cpu.kernels().l2_norm(job, static_cast<std::uint32_t>(begin),
                                    static_cast<std::uint32_t>(end));
            });
}

void causal_conv(ops::Device& device, const ops::CausalConvArgs& a) noexcept {
  constexpr std::size_t kChannels = 16;  // a thread's share is a multiple of it
  CpuDevice& cpu = cpu_of(device);
  const std::uint32_t n_channels = a.state.n_channels;
  const ConvJob job{.x = a.x.data,
                    .x_stride = a.x.stride,
                    .out = a.out.data,
                    .out_stride = a.out.stride,
                    .weight = a.weight,
                    .bias = a.bias,
                    .kernel = a.state.conv_kernel,
                    .n_channels = n_channels,
                    .silu = a.silu,
                    .is_f32 = a.state.conv_type == DType::f32};
  const std::size_t work = std::size_t{a.x.n_rows} * n_channels * (a.state.conv_kernel + 8);
  cpu.split(
      (n_channels + kChannels - 1) / kChannels, work, [&](std::size_t begin, std::size_t end, int) {
        const auto first = static_cast<std::uint32_t>(begin * kChannels);
        const auto last =
            static_cast<std::uint32_t>(end * kChannels < n_channels ? end * kChannels : n_channels);
        for (const RecurrentRowView& row : a.state.rows) {
          cpu.kernels().causal_conv(job,
                                    {.from = reinterpret_cast<const std::uint8_t*>(row.conv_from),
                                     .to = reinterpret_cast<std::uint8_t*>(row.conv_to),
                                     .n_new = row.n_new,
                                     .token = row.first_token},
                                    first, last);
        }
      });
}

void delta_gates(ops::Device& device, const ops::DeltaGatesArgs& a) noexcept {
  CpuDevice& cpu = cpu_of(device);
  const DeltaGatesJob job{.a = a.a.data,
                          .b = a.b.data,
                          .a_stride = a.a.stride,
                          .b_stride = a.b.stride,
                          .a_log = a.a_log,
                          .dt_bias = a.dt_bias,
                          .decay = a.decay.data,
                          .beta = a.beta.data,
                          .decay_stride = a.decay.stride,
                          .beta_stride = a.beta.stride,
                          .n_heads = a.a.n_cols};
  cpu.split(a.a.n_rows, std::size_t{a.a.n_rows} * a.a.n_cols * 40,
            [&](std::size_t begin, std::size_t end, int) {
              cpu.kernels().delta_gates(job, static_cast<std::uint32_t>(begin),
                                        static_cast<std::uint32_t>(end));
            });
}

// Items are (head, row), heads outermost: equal shares of heads are equal shares of work.
void gated_delta(ops::Device& device, const ops::GatedDeltaArgs& a) noexcept {
  CpuDevice& cpu = cpu_of(device);
  const RecurrentLayerView& state = a.state;
  const DeltaJob job{.q = a.q.data,
                     .k = a.k.data,
                     .v = a.v.data,
                     .decay = a.decay.data,
                     .beta = a.beta.data,
                     .q_stride = a.q.stride,
                     .k_stride = a.k.stride,
                     .v_stride = a.v.stride,
                     .decay_stride = a.decay.stride,
                     .beta_stride = a.beta.stride,
                     .out = a.out.data,
                     .out_stride = a.out.stride,
                     .values_per_key = state.n_value_heads / (a.q.n_cols / state.key_dim),
                     .value_dim = state.value_dim,
                     .key_dim = state.key_dim};
  const std::size_t n_rows = state.rows.size(),
                    work = 4 * a.q.n_rows * state.n_value_heads * state.head_floats();
  cpu.split(state.n_value_heads * n_rows, work, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t i = begin; i < end; ++i) {
      const RecurrentRowView& row = state.rows[i % n_rows];
      const std::size_t head = i / n_rows, at = head * state.head_floats();
      cpu.kernels().gated_delta(job, {.from = row.delta_from ? row.delta_from + at : nullptr,
                                      .to = row.delta_to + at,
                                      .n_new = row.n_new,
                                      .token = row.first_token,
                                      .head = static_cast<std::uint32_t>(head)});
    }
  });
}

}  // namespace kvasir::backend::cpu
