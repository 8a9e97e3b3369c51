// Recurrent layers: the causal convolution, the gates and the recurrence of gated delta.
#pragma once

#include "backend/cuda/device/launch.h"
#include "backend/cuda/device/views.h"

namespace kvasir::backend::cuda {

struct RecurrentRow {  // as tensor/recurrent_view.h's RecurrentRowView, byte for byte
  const std::byte* conv_from;
  std::byte* conv_to;
  const float* delta_from;
  float* delta_to;
  std::uint32_t n_new, first_token;
  bool is_tentative;
};

struct ConvParams {
  ConstMat x;
  Mat out;  // data null: only the tails
  const float *weight, *bias;
  const RecurrentRow* rows;
  std::uint32_t kernel, n_channels;
  std::uint32_t silu;
  Type type;
};
struct DeltaGatesParams {
  ConstMat a, b;
  Mat decay, beta;
  const float *a_log, *dt_bias;
};
struct GatedDeltaParams {
  ConstMat q, k, v, decay, beta;
  Mat out;  // data null: only the states
  const RecurrentRow* rows;
  std::uint32_t n_value_heads, value_dim, key_dim, values_per_key;
};

constexpr std::uint32_t kLargestKeyDim = 512;

void launch_causal_conv(Queue& queue,
                        const ConvParams& params,
                        std::uint32_t n_rows,
                        std::uint32_t most_new);
void launch_delta_gates(Queue& queue, const DeltaGatesParams& params);
void launch_gated_delta(Queue& queue, const GatedDeltaParams& params, std::uint32_t n_rows);

}  // namespace kvasir::backend::cuda
