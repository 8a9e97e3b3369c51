// What kernels see: matrices, rows of the step and planes of KV state, in device memory. The same
// shapes as tensor/'s views, whose headers kernels do not include.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvasir::backend::cuda {

template <class T>
struct BasicMat {  // [n_rows, n_cols], row-major, stride elements from one row to the next
  T* data;
  std::uint32_t n_rows, n_cols;
  std::size_t stride;
#if defined(__CUDACC__)
  __device__ T* row(std::size_t r) const { return data + r * stride; }
#endif
};
using Mat = BasicMat<float>;
using ConstMat = BasicMat<const float>;

enum class Type : std::uint32_t { f32, bf16, f16 };

struct KvRow {  // as tensor/kv_view.h's KvRowView
  const std::uint32_t* blocks;
  std::uint32_t first_position, length, n_new, first_token;
  std::uint32_t is_encoded;
  std::uint32_t pad;
};

// The rows of a step; n_rows is in memory so that it may differ under one captured graph.
struct KvRows {
  const KvRow* rows;
  // [n_tokens]: which row a token of the step is of.
  const std::uint32_t* row_of_token;
};

}  // namespace kvasir::backend::cuda
