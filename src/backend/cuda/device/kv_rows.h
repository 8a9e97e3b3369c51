// Writing rows of KV state: this step's keys and values, and conversion from exact to encoded form.
#pragma once

#include "backend/cuda/device/kv_side.h"
#include "backend/cuda/device/launch.h"
#include "backend/cuda/device/views.h"

namespace kvasir::backend::cuda {

// Keys then values of a layer in both forms. encoded[i].codes null: there is no encoded form.
struct KvLayer {
  KvSide exact[2], encoded[2];
  std::uint32_t n_kv_heads, head_dim, block_tokens;
  Type type;
};
struct AppendParams {
  ConstMat x[2];
  KvLayer layer;
  const KvRow* rows;
};
struct ConvertParams {
  KvLayer layer;
  const std::uint32_t *from, *to;
  std::uint32_t begin, end;
};

// most_new: at least the tokens of every row.
void launch_append(Queue& queue,
                   const AppendParams& params,
                   std::uint32_t n_rows,
                   std::uint32_t most_new);
void launch_convert(Queue& queue, const ConvertParams& params);

}  // namespace kvasir::backend::cuda
