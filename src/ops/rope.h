// rope: rotary positions in place on the first 2·n_pairs elements of each head (Su et al.,
// "RoFormer", 2021). Pair i is (i, i + n_pairs), or (2i, 2i + 1) when interleaved. Tables hold cos
// and sin times the attention factor.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/mat_view.h"

namespace kvasir::ops {

struct RopeArgs {
  MatView x;  // [n_tokens, n_heads · head_dim]
  std::uint32_t head_dim = 0;
  std::uint32_t n_pairs = 0;  // 2·n_pairs <= head_dim; the rest is left alone
  bool interleaved = false;
  std::span<const std::uint32_t> positions;  // [n_tokens], absolute (KV-33)
  const float* cos = nullptr;                // [max_position, n_pairs]
  const float* sin = nullptr;
};

}  // namespace kvasir::ops
