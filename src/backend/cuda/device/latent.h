// Latent layers: appends, attention over latent rows, and the sparse index.
#pragma once

#include "backend/cuda/device/attention.h"
#include "backend/cuda/device/launch.h"
#include "backend/cuda/device/views.h"

namespace kvasir::backend::cuda {

// As tensor/latent_view.h's LatentLayerView: planes [n_blocks][block_tokens][elements].
struct LatentLayer {
  std::byte *latent, *index;
  const KvRow* rows;
  Type type;
  std::uint32_t rank, rope_dim, index_dim, block_tokens, pad;
};
struct LatentAppendParams {
  ConstMat latent, rope_key, index_key;
  LatentLayer layer;
};
// shared: q and out of [n_heads · rank], dim the rank, one KV head whose planes are not read.
struct LatentAttentionParams {
  AttentionParams shared;
  ConstMat q_rope;
  const std::byte* latent;
  const std::uint32_t* selected;  // [n_tokens, top_k] or null: all
  std::uint32_t rope_step, rope_dim, top_k;
  Type type;
};
struct IndexParams {
  ConstMat q, weights;
  LatentLayer layer;
  float* scores;            // [n_tokens, longest]
  std::uint32_t* selected;  // [all tokens of the step, top_k]
  std::uint32_t n_heads, top_k, longest;
  std::uint32_t first_token, n_tokens;  // tokens of the step that these launches serve
  std::uint32_t pad;
};

constexpr std::uint32_t kLargestRank = 1024;

void launch_latent_append(Queue& queue,
                          const LatentAppendParams& params,
                          std::uint32_t n_rows,
                          std::uint32_t most_new);
void launch_latent_attention(Queue& queue,
                             const LatentAttentionParams& params,
                             const AttentionGrid& grid);
// Scores of every position that a query sees, then its best.
void launch_index_scores(Queue& queue,
                         const IndexParams& params,
                         std::uint32_t n_rows,
                         std::uint32_t most_new);
void launch_index_select(Queue& queue,
                         const IndexParams& params,
                         std::uint32_t n_rows,
                         std::uint32_t most_new);

}  // namespace kvasir::backend::cuda
