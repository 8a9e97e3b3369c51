// Norms, rotary positions, activations and copies.
#include "backend/cuda/device/elementwise.h"

#include "backend/cuda/detail/cuda_ops.h"

namespace kvasir::backend::cuda {
namespace {

static_assert(static_cast<int>(Act::clamped_swiglu) ==
              static_cast<int>(ops::Activation::clamped_swiglu));
static_assert(static_cast<int>(Act::gelu_tanh) == static_cast<int>(ops::Activation::gelu_tanh));

}  // namespace

void rms_norm(ops::Device& device, const ops::RmsNormArgs& a) noexcept {
  launch_norm(cuda_of(device).queue(), {.x = mat_of(a.x),
                                        .out = mat_of(a.out),
                                        .weight = a.weight,
                                        .bias = nullptr,
                                        .group = a.group,
                                        .kind = NormKind::rms,
                                        .eps = a.eps,
                                        .scale = 1.0f,
                                        .added = {},
                                        .sum = {},
                                        .copy = {}});
}

void layer_norm(ops::Device& device, const ops::LayerNormArgs& a) noexcept {
  launch_norm(cuda_of(device).queue(), {.x = mat_of(a.x),
                                        .out = mat_of(a.out),
                                        .weight = a.weight,
                                        .bias = a.bias,
                                        .group = a.x.n_cols,
                                        .kind = NormKind::layer,
                                        .eps = a.eps,
                                        .scale = 1.0f,
                                        .added = {},
                                        .sum = {},
                                        .copy = {}});
}

void l2_norm(ops::Device& device, const ops::L2NormArgs& a) noexcept {
  launch_norm(cuda_of(device).queue(), {.x = mat_of(a.x),
                                        .out = mat_of(a.out),
                                        .weight = nullptr,
                                        .bias = nullptr,
                                        .group = a.group,
                                        .kind = NormKind::l2,
                                        .eps = a.eps,
                                        .scale = a.scale,
                                        .added = {},
                                        .sum = {},
                                        .copy = {}});
}

void rope(ops::Device& device, const ops::RopeArgs& a) noexcept {
  CudaDevice& cuda = cuda_of(device);
  if (a.x.n_rows == 0) return;
  launch_rope(cuda.queue(), {.x = mat_of(a.x),
                             .positions = cuda.stage(a.positions),
                             .cos = a.cos,
                             .sin = a.sin,
                             .head_dim = a.head_dim,
                             .n_pairs = a.n_pairs,
                             .interleaved = a.interleaved ? 1u : 0u,
                             .pad = 0});
}

void act_mul(ops::Device& device, const ops::ActMulArgs& a) noexcept {
  launch_act_mul(cuda_of(device).queue(), {.gate = mat_of(a.gate),
                                           .up = mat_of(a.up),
                                           .out = mat_of(a.out),
                                           .activation = static_cast<Act>(a.activation),
                                           .limit = a.limit,
                                           .copy = {}});
}

void gate_rows(ops::Device& device, const ops::GateRowsArgs& a) noexcept {
  launch_gate_rows(cuda_of(device).queue(),
                   {.x = mat_of(a.x), .y = mat_of(a.gate), .alpha = 1.0f, .softcap = 0.0f});
}

void add_scaled(ops::Device& device, const ops::AddScaledArgs& a) noexcept {
  launch_add_scaled(cuda_of(device).queue(),
                    {.x = mat_of(a.x), .y = mat_of(a.y), .alpha = a.alpha, .softcap = 0.0f});
}

void scale(ops::Device& device, const ops::ScaleArgs& a) noexcept {
  launch_scale(cuda_of(device).queue(),
               {.x = mat_of(a.x), .y = {}, .alpha = a.alpha, .softcap = a.softcap});
}

void gather_rows(ops::Device& device, const ops::GatherRowsArgs& a) noexcept {
  CudaDevice& cuda = cuda_of(device);
  Mat out = mat_of(a.out);
  out.n_rows = static_cast<std::uint32_t>(a.rows.size());
  if (out.n_rows == 0) return;
  out.n_cols = a.x.n_cols;
  launch_gather(cuda.queue(), {.x = mat_of(a.x), .out = out, .rows = cuda.stage(a.rows)});
}

}  // namespace kvasir::backend::cuda
