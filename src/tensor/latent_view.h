// What kernels see of a latent layer (KV-40): a token is one row for all heads, the normed latent
// followed by the roped key, in paged blocks; layers with a sparse index keep an index key in the
// same slots of a second plane. Rows of the step are KvRowViews, in exact form. Made by kv/ for one
// step, never outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/kv_view.h"

namespace kvasir {

struct LatentLayerView {
  std::byte* latent = nullptr;  // [n_blocks][block_tokens][rank + rope_dim]
  std::byte* index = nullptr;   // [n_blocks][block_tokens][index_dim], or null
  DType type = DType::bf16;     // f32 or bf16, of both planes
  std::uint32_t rank = 0;       // kv_lora_rank
  std::uint32_t rope_dim = 0;   // qk_rope_head_dim
  std::uint32_t index_dim = 0;  // index_head_dim
  std::uint32_t block_tokens = 0;
  std::span<const KvRowView> rows;

  std::uint32_t dim() const noexcept { return rank + rope_dim; }
  // Which row of either plane holds a position of a row of the step.
  std::size_t slot(const KvRowView& row, std::uint32_t position) const noexcept {
    return std::size_t{row.blocks[position / block_tokens].value} * block_tokens +
           position % block_tokens;
  }
};

}  // namespace kvasir
