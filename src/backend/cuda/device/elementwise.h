// Element-wise kernels and norms: their parameters and launches.
#pragma once

#include "backend/cuda/device/launch.h"
#include "backend/cuda/device/views.h"

namespace kvasir::backend::cuda {

enum class NormKind : std::uint32_t { rms, l2, layer };
enum class Act : std::uint32_t { silu, gelu, gelu_tanh, sigmoid, identity, clamped_swiglu };

struct NormParams {
  ConstMat x;
  Mat out;
  const float *weight, *bias;
  std::uint32_t group;
  NormKind kind;
  float eps, scale;  // scale: of l2
};
struct RopeParams {
  Mat x;
  const std::uint32_t* positions;
  const float *cos, *sin;
  std::uint32_t head_dim, n_pairs;
  std::uint32_t interleaved, pad;  // structs without holes: launches are compared byte for byte
};
struct ActMulParams {
  ConstMat gate, up;
  Mat out;
  Act activation;
  float limit;
};
struct RowsParams {  // gate_rows: y is one column; add_scaled: the other matrix; scale: unused
  Mat x;
  ConstMat y;
  float alpha, softcap;
};
struct GatherParams {
  ConstMat x;
  Mat out;
  const std::uint32_t* rows;
};

void launch_norm(Queue& queue, const NormParams& params);
void launch_rope(Queue& queue, const RopeParams& params);
void launch_act_mul(Queue& queue, const ActMulParams& params);
void launch_gate_rows(Queue& queue, const RowsParams& params);
void launch_add_scaled(Queue& queue, const RowsParams& params);
void launch_scale(Queue& queue, const RowsParams& params);
void launch_gather(Queue& queue, const GatherParams& params);

}  // namespace kvasir::backend::cuda
