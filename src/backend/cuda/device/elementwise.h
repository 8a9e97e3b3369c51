// Element-wise kernels and norms: their parameters and launches.
#pragma once

#include "backend/cuda/device/launch.h"
#include "backend/cuda/device/views.h"

namespace kvasir::backend::cuda {

enum class NormKind : std::uint32_t { rms, l2, layer };
enum class Act : std::uint32_t { silu, gelu, gelu_tanh, sigmoid, identity, clamped_swiglu };

// The result rounded to bf16 too; data null: not. As rows [n_rows, stride], or (tile_rows > 0) as
// wide products read them: stride elements of K a row, launch_convert_wide.
struct Bf16Copy {
  void* data;
  std::uint32_t stride, tile_rows;
  // Elements; those of a piece of 8 columns lie together.
  __host__ __device__ std::size_t place(std::size_t row, std::uint32_t column) const {
    if (tile_rows == 0) return row * stride + column;
    const std::size_t tile = row / tile_rows;
    const auto in_tile = static_cast<std::uint32_t>(row % tile_rows);
    return (tile * (stride / 64) + column / 64) * tile_rows * 64 + in_tile * 64 +
           ((column % 64 / 8) ^ (in_tile % 8)) * 8 + column % 8;
  }
};

struct NormParams {
  ConstMat x;
  Mat out;
  const float *weight, *bias;
  std::uint32_t group;
  NormKind kind;
  float eps, scale;  // scale: of l2, or of what is added
  // rms: first x += added · scale (the product rounded), into sum, which is x. data null: nothing
  // is.
  ConstMat added;
  Mat sum;
  Bf16Copy copy;
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
  Mat out;  // data null: the copy alone
  Act activation;
  float limit;
  Bf16Copy copy;
};
struct RowsParams {  // gate_rows: y is one column; add_scaled: the other matrix; scale: unused
  Mat x;
  ConstMat y;
  float alpha, softcap;
};
// query_key: a warp has a head of q or k, or of v to be stored.
struct QueryKeyParams {
  Mat q, k;
  ConstMat v;
  const float *q_norm, *k_norm;  // [head_dim] or null
  const std::uint32_t* positions;
  const float *cos, *sin;
  std::byte *keys, *values;  // exact planes [n_blocks][n_kv_heads][block_tokens][head_dim]
  KvRows rows;
  std::uint32_t head_dim, n_pairs, interleaved, block_tokens;
  float eps;
  Type type;
};
struct GatherParams {
  ConstMat x;
  Mat out;
  const std::uint32_t* rows;
};

void launch_norm(Queue& queue, const NormParams& params);
void launch_rope(Queue& queue, const RopeParams& params);
void launch_query_key(Queue& queue, const QueryKeyParams& params);
// Whether heads are what device/kept_head.cuh takes.
bool takes_kept_heads(const QueryKeyParams& params);
void launch_act_mul(Queue& queue, const ActMulParams& params);
void launch_gate_rows(Queue& queue, const RowsParams& params);
void launch_add_scaled(Queue& queue, const RowsParams& params);
void launch_scale(Queue& queue, const RowsParams& params);
void launch_gather(Queue& queue, const GatherParams& params);

}  // namespace kvasir::backend::cuda
