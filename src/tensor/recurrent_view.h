// What kernels see of recurrent state (KV-39): one RecurrentLayerView per layer, one row view per
// row of the step. An op reads a row's state at `from` and leaves the state after its last token at
// `to`; the two are the same place (in place) or do not overlap, so a store may keep the committed
// state apart and swap. A replay is the same op with fewer tokens. Made for one step, never
// outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace kvasir {

struct RecurrentRowView {
  // [conv_kernel - 1, n_channels], the last inputs of the convolution, oldest first.
  const std::byte* conv_from = nullptr;  // null: the row starts, zeros
  std::byte* conv_to = nullptr;
  // [n_value_heads, value_dim, key_dim]; not read where the layer has no delta state.
  const float* delta_from = nullptr;  // null: the row starts, zeros
  float* delta_to = nullptr;
  std::uint32_t n_new = 0;        // tokens this step feeds; 0 moves the state unchanged
  std::uint32_t first_token = 0;  // index of the first of them in the step's flat token list
  // The last of them may be rejected: their inputs are kept, so that the state after fewer can be
  // had by a replay.
  bool is_tentative = false;
};

struct RecurrentLayerView {
  DType conv_type = DType::f32;  // f32 or bf16: what a convolution's input is rounded to
  std::uint32_t conv_kernel = 0;
  std::uint32_t n_channels = 0;
  std::uint32_t n_value_heads = 0;  // 0: no delta state (short convolutions)
  std::uint32_t value_dim = 0;
  std::uint32_t key_dim = 0;
  std::span<const RecurrentRowView> rows;

  std::size_t conv_bytes() const noexcept {
    return std::size_t{conv_kernel - 1} * n_channels * size_of(conv_type);
  }
  std::size_t head_floats() const noexcept { return std::size_t{value_dim} * key_dim; }
  std::size_t delta_bytes() const noexcept { return n_value_heads * head_floats() * sizeof(float); }
};

}  // namespace kvasir
