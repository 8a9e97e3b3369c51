// Latent attention and the sparse index.
#include "backend/cuda/device/latent.h"

#include <algorithm>

#include "backend/cuda/detail/attention_parts.h"

namespace kvasir::backend::cuda {
namespace {

constexpr std::size_t kScoreBytes = std::size_t{256} << 20;  // tokens beyond wait their turn

LatentLayer layer_of(const LatentLayerView& kv, const KvRow* rows) noexcept {
  return {.latent = kv.latent,
          .index = kv.index,
          .rows = rows,
          .type = type_of(kv.type),
          .rank = kv.rank,
          .rope_dim = kv.rope_dim,
          .index_dim = kv.index_dim,
          .block_tokens = kv.block_tokens,
          .pad = 0};
}

LatentAttentionParams params_of(const ops::LatentAttentionArgs& a,
                                const KvRow* rows,
                                const std::uint32_t* selected) noexcept {
  LatentAttentionParams p{.shared = {},
                          .q_rope = mat_of(a.q_rope),
                          .latent = a.kv.latent,
                          .selected = selected,
                          .rope_step = a.rope_step,
                          .rope_dim = a.kv.rope_dim,
                          .top_k = a.top_k,
                          .type = type_of(a.kv.type)};
  p.shared.q = mat_of(a.q_latent);
  p.shared.out = mat_of(a.out);
  p.shared.rows = rows;
  p.shared.n_heads = a.n_heads;
  p.shared.n_kv_heads = 1;
  p.shared.dim = a.kv.rank;
  p.shared.block_tokens = a.kv.block_tokens;
  p.shared.rounds = a.kv.type == DType::f32 ? 0 : 1;
  p.shared.in_scale = 1.0f;
  p.shared.out_scale = a.scale * kLog2OfE;
  p.shared.most_keys = selected ? a.top_k : 0;
  return p;
}

}  // namespace

void latent_append(ops::Device& device, const ops::LatentAppendArgs& a) noexcept {
  CudaDevice& cuda = cuda_of(device);
  const auto rows = cuda.rows_of(a.kv.rows, a.kv.block_tokens, a.latent.n_rows);
  if (rows.most_new == 0) return;
  launch_latent_append(cuda.queue(),
                       {.latent = mat_of(a.latent),
                        .rope_key = mat_of(a.rope_key),
                        .index_key = mat_of(a.index_key),
                        .layer = layer_of(a.kv, rows.view.rows)},
                       rows.n_rows, bucket_of(rows.most_new));
}

void latent_attention(ops::Device& device, const ops::LatentAttentionArgs& a) noexcept {
  CudaDevice& cuda = cuda_of(device);
  const NewTokens most = count_new(a.kv.rows);
  if (most.few + most.many == 0) return;
  const auto rows = cuda.rows_of(a.kv.rows, a.kv.block_tokens, a.q_latent.n_rows);
  const std::uint32_t* const selected = a.selected.empty() ? nullptr : a.selected.data();
  LatentAttentionParams p = params_of(a, rows.view.rows, selected);
  if (most.many > 0)
    launch_latent_attention(cuda.queue(), p,
                            {.n_rows = rows.n_rows, .most_new = most.many, .n_splits = 1});
  if (most.few == 0) return;
  const std::uint32_t n_keys = selected ? std::min(rows.longest, a.top_k) : rows.longest;
  p.shared.is_few = 1;
  p.shared.max_segments = bucket_of((n_keys + kSegment - 1) / kSegment);
  attend_in_parts(
      cuda, p.shared, {.n_rows = rows.n_rows, .most_new = most.few, .n_splits = 1},
      {.a_row = a.n_heads, .places = 2 * static_cast<std::uint32_t>(cuda.n_multiprocessors())},
      [&](const AttentionGrid& grid) { launch_latent_attention(cuda.queue(), p, grid); });
}

void index_select(ops::Device& device, const ops::IndexSelectArgs& a) noexcept {
  CudaDevice& cuda = cuda_of(device);
  const auto rows = cuda.rows_of(a.kv.rows, a.kv.block_tokens, a.q.n_rows);
  if (rows.most_new == 0) return;
  const std::uint32_t most_new = bucket_of(rows.most_new), longest = bucket_of(rows.longest);
  IndexParams p{.q = mat_of(a.q),
                .weights = mat_of(a.weights),
                .layer = layer_of(a.kv, rows.view.rows),
                .scores = nullptr,
                .selected = a.selected.data(),
                .n_heads = a.n_heads,
                .top_k = a.top_k,
                .longest = longest,
                .first_token = 0,
                .n_tokens = static_cast<std::uint32_t>(
                    std::clamp<std::size_t>(kScoreBytes / sizeof(float) / longest, 1, a.q.n_rows)),
                .pad = 0};
  p.scores = cuda.workspace<float>(0, std::size_t{p.n_tokens} * longest);
  for (; p.first_token < a.q.n_rows; p.first_token += p.n_tokens) {
    launch_index_scores(cuda.queue(), p, rows.n_rows, most_new);
    launch_index_select(cuda.queue(), p, rows.n_rows, most_new);
  }
}

}  // namespace kvasir::backend::cuda
