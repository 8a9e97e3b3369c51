// Fused ops: one launch where the shapes allow it, else the composition.
#include "ops/fused.h"

#include <algorithm>

#include "backend/cuda/detail/kv_args.h"
#include "backend/cuda/detail/products.h"
#include "backend/cuda/detail/query_key.h"
#include "backend/cuda/device/elementwise.h"

namespace kvasir::backend::cuda {
namespace {

// Few rows: the activation ends the products of gate and up. Many: it also rounds its result. Of a
// result that only products read, the rounded one will do.
void activate_gated(ops::Device& device,
                    const ops::GatedLinearArgs& a,
                    bool is_rounded_only) noexcept {
  const std::uint32_t n = a.gate_up.n_cols / 2;
  const MatView gate = a.gate_up.columns(0, n);
  CudaDevice& cuda = cuda_of(device);
  const auto activation = static_cast<Act>(a.activation);
  if (multiply_gated(cuda, a.x, a.parts, activation, gate, is_rounded_only)) return;
  device.ops().linear_group(device, {.x = a.x, .parts = a.parts, .out = a.gate_up});
  const Bf16Copy copy = cuda.products().copy_of_next(gate.n_rows, n, Products::CopyOf::product);
  Mat out = mat_of(gate);
  if (is_rounded_only) out.data = nullptr;
  launch_act_mul(cuda.queue(), {.gate = mat_of(ConstMatView(gate)),
                                .up = mat_of(ConstMatView(a.gate_up.columns(n, n))),
                                .out = out,
                                .activation = activation,
                                .limit = 0.0f,
                                .copy = copy});
  cuda.products().keep_copy(gate, copy);
}

}  // namespace

// Norms come before products: the result is rounded for them on the way.
void add_norm(ops::Device& device, const ops::AddNormArgs& a) noexcept {
  Products& products = cuda_of(device).products();
  const Bf16Copy copy = products.copy_of_next(a.x.n_rows, a.x.n_cols, Products::CopyOf::other);
  launch_norm(cuda_of(device).queue(), {.x = mat_of(ConstMatView(a.x)),
                                        .out = mat_of(a.out),
                                        .weight = a.weight,
                                        .bias = nullptr,
                                        .group = a.x.n_cols,
                                        .kind = NormKind::rms,
                                        .eps = a.eps,
                                        .scale = a.alpha,
                                        .added = mat_of(a.y),
                                        .sum = mat_of(a.x),
                                        .copy = copy});
  if (a.x.n_rows > 0) products.keep_copy(a.out, copy);
}

void gated_linear(ops::Device& device, const ops::GatedLinearArgs& a) noexcept {
  if (a.x.n_rows > 0) activate_gated(device, a, /*is_rounded_only=*/false);
}

void gated_mlp(ops::Device& device, const ops::GatedMlpArgs& a) noexcept {
  if (a.out.n_rows == 0) return;
  const std::uint32_t n = a.gated.gate_up.n_cols / 2;
  const bool is_known = a.out.n_rows <= kManyRows || cuda_of(device).is_eager();
  activate_gated(device, a.gated, is_known && takes_rounded(matrix_of(a.down.weight).weight, n));
  linear(device, {.x = a.gated.gate_up.columns(0, n),
                  .weight = a.down.weight,
                  .bias = a.down.bias,
                  .out = a.out});
}

bool is_plain(const ops::QueryKeyArgs& a) noexcept {
  constexpr std::uint32_t kMostTokens = 65535, kLongestHead = 512;
  const auto is_of_head = [&](const float* norm, std::uint32_t group) {
    return norm == nullptr || group == a.head_dim;
  };
  return is_of_head(a.q_norm, a.q_group) && is_of_head(a.k_norm, a.k_group) &&
         a.head_dim <= kLongestHead && a.q.n_rows <= kMostTokens &&
         std::none_of(a.kv.rows.begin(), a.kv.rows.end(),
                      [](const KvRowView& row) { return row.is_encoded; });
}

QueryKeyParams query_key_params(CudaDevice& cuda, const ops::QueryKeyArgs& a) noexcept {
  const auto rows = cuda.rows_of(a.kv.rows, a.kv.block_tokens, a.q.n_rows);
  return {.q = mat_of(a.q),
          .k = mat_of(a.k),
          .v = mat_of(a.v),
          .q_norm = a.q_norm,
          .k_norm = a.k_norm,
          .positions = a.n_pairs > 0 ? cuda.stage(a.positions) : nullptr,
          .cos = a.cos,
          .sin = a.sin,
          .keys = a.kv.k,
          .values = a.kv.v,
          .rows = rows.view,
          .head_dim = a.head_dim,
          .n_pairs = a.n_pairs,
          .interleaved = a.interleaved ? 1u : 0u,
          .block_tokens = a.kv.block_tokens,
          .eps = a.eps,
          .type = type_of(a.kv.type)};
}

void query_key(ops::Device& device, const ops::QueryKeyArgs& a) noexcept {
  if (!is_plain(a)) return ops::query_key_composed(device, a);
  CudaDevice& cuda = cuda_of(device);
  launch_query_key(cuda.queue(), query_key_params(cuda, a));
}

}  // namespace kvasir::backend::cuda
