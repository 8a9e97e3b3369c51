// Views of the layers that keep no keys and values, from the numbers of the KV list.
#pragma once

#include "contract/kv_list.h"
#include "tensor/latent_view.h"
#include "tensor/recurrent_view.h"

namespace kvasir::kv {

// Without rows. The tail holds activations: f32 where everything is, else bf16.
inline RecurrentLayerView recurrent_view_of(const RecurrentSpec& spec, DType type) noexcept {
  return {.conv_type = type == DType::f32 ? DType::f32 : DType::bf16,
          .conv_kernel = spec.conv_kernel,
          .n_channels = spec.n_channels,
          .n_value_heads = spec.n_value_heads,
          .value_dim = spec.value_dim,
          .key_dim = spec.key_dim,
          .rows = {}};
}

// Without planes and rows.
inline LatentLayerView latent_view_of(const LatentSpec& spec,
                                      DType type,
                                      std::uint32_t block_tokens) noexcept {
  return {.type = type,
          .rank = spec.rank,
          .rope_dim = spec.rope_dim,
          .index_dim = spec.index_dim,
          .block_tokens = block_tokens,
          .rows = {}};
}

}  // namespace kvasir::kv
