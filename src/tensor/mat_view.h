// MatView: a row-major f32 matrix [n_rows, n_cols] with a row stride: the activations between ops.
// Owns nothing. Columns are contiguous, so heads and fused projections are column ranges of one
// matrix.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvasir {

template <class T>
struct BasicMatView {
  T* data = nullptr;
  std::uint32_t n_rows = 0;
  std::uint32_t n_cols = 0;
  std::size_t stride = 0;  // elements from one row to the next, >= n_cols

  T* row(std::size_t r) const noexcept { return data + r * stride; }
  BasicMatView columns(std::uint32_t begin, std::uint32_t count) const noexcept {
    return {data + begin, n_rows, count, stride};
  }
  BasicMatView rows(std::uint32_t begin, std::uint32_t count) const noexcept {
    return {data + begin * stride, count, n_cols, stride};
  }
  operator BasicMatView<const T>() const noexcept { return {data, n_rows, n_cols, stride}; }
};

using MatView = BasicMatView<float>;
using ConstMatView = BasicMatView<const float>;

constexpr MatView mat_view(float* data, std::uint32_t n_rows, std::uint32_t n_cols) noexcept {
  return {data, n_rows, n_cols, n_cols};
}

}  // namespace kvasir
