// Recurrent layers.
#include "backend/cuda/device/recurrent.h"

#include <algorithm>
#include <cstddef>

#include "backend/cuda/detail/kv_args.h"

namespace kvasir::backend::cuda {
namespace {

static_assert(sizeof(RecurrentRow) == sizeof(RecurrentRowView) &&
              offsetof(RecurrentRow, delta_to) == offsetof(RecurrentRowView, delta_to) &&
              offsetof(RecurrentRow, first_token) == offsetof(RecurrentRowView, first_token));

const RecurrentRow* stage_rows(CudaDevice& device, const RecurrentLayerView& state) noexcept {
  return reinterpret_cast<const RecurrentRow*>(device.stage(state.rows));
}

}  // namespace

void causal_conv(ops::Device& device, const ops::CausalConvArgs& a) noexcept {
  if (a.state.rows.empty()) return;
  std::uint32_t most_new = 0;
  for (const RecurrentRowView& row : a.state.rows) most_new = std::max(most_new, row.n_new);
  CudaDevice& cuda = cuda_of(device);
  launch_causal_conv(cuda.queue(),
                     {.x = mat_of(a.x),
                      .out = mat_of(a.out),
                      .weight = a.weight,
                      .bias = a.bias,
                      .rows = stage_rows(cuda, a.state),
                      .kernel = a.state.conv_kernel,
                      .n_channels = a.state.n_channels,
                      .silu = a.silu ? 1u : 0u,
                      .type = type_of(a.state.conv_type)},
                     static_cast<std::uint32_t>(a.state.rows.size()),
                     most_new == 0 ? 0 : bucket_of(most_new));
}

void delta_gates(ops::Device& device, const ops::DeltaGatesArgs& a) noexcept {
  launch_delta_gates(cuda_of(device).queue(), {.a = mat_of(a.a),
                                               .b = mat_of(a.b),
                                               .decay = mat_of(a.decay),
                                               .beta = mat_of(a.beta),
                                               .a_log = a.a_log,
                                               .dt_bias = a.dt_bias});
}

void gated_delta(ops::Device& device, const ops::GatedDeltaArgs& a) noexcept {
  if (a.state.rows.empty()) return;
  KVASIR_CHECK(a.state.key_dim <= kLargestKeyDim) << "keys of " << a.state.key_dim;
  CudaDevice& cuda = cuda_of(device);
  launch_gated_delta(cuda.queue(),
                     {.q = mat_of(a.q),
                      .k = mat_of(a.k),
                      .v = mat_of(a.v),
                      .decay = mat_of(a.decay),
                      .beta = mat_of(a.beta),
                      .out = mat_of(a.out),
                      .rows = stage_rows(cuda, a.state),
                      .n_value_heads = a.state.n_value_heads,
                      .value_dim = a.state.value_dim,
                      .key_dim = a.state.key_dim,
                      .values_per_key = a.state.n_value_heads / (a.q.n_cols / a.state.key_dim)},
                     static_cast<std::uint32_t>(a.state.rows.size()));
}

}  // namespace kvasir::backend::cuda
