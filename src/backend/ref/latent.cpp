// Latent layers. Attention over latent rows is attention with one key head whose values are the
// keys: a row's visible or selected latent rows are gathered into one block and given to it, in
// either mode; the first `rank` columns are the result.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "backend/ref/detail/ref_ops.h"
#include "base/half.h"
#include "base/thread_pool.h"

namespace kvasir::backend::ref {
namespace {

void store(DType type, const float* from, std::size_t n, std::byte* to) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    const BFloat16 half = to_bf16(from[i]);
    type == DType::f32 ? std::memcpy(to + 4 * i, from + i, 4) : std::memcpy(to + 2 * i, &half, 2);
  }
}

float load(DType type, const std::byte* from, std::size_t i) noexcept {
  float value;
  BFloat16 half;
  if (type == DType::f32) return std::memcpy(&value, from + 4 * i, 4), value;
  return std::memcpy(&half, from + 2 * i, 2), to_f32(half);
}

// A query as attention wants it: of each head the latent part, then the roped one.
void join_query(const ops::LatentAttentionArgs& a, std::size_t token, float* q) noexcept {
  for (std::size_t h = 0; h < a.n_heads; ++h, q += a.kv.dim()) {
    std::copy_n(a.q_latent.row(token) + h * a.kv.rank, a.kv.rank, q);
    std::copy_n(a.q_rope.row(token) + h * a.rope_step, a.kv.rope_dim, q + a.kv.rank);
  }
}

// Queries [first, first + n) of a row attend the latent rows of `positions`, the last of them its
// own position in that list.
void attend(ops::Device& device,
            const ops::LatentAttentionArgs& a,
            const KvRowView& row,
            std::uint32_t first,
            std::uint32_t n,
            const std::vector<std::uint32_t>& positions) {
  const std::size_t dim = a.kv.dim(), row_bytes = dim * size_of(a.kv.type);
  std::vector<std::byte> keys(positions.size() * row_bytes);
  for (std::size_t j = 0; j < positions.size(); ++j)
    std::memcpy(&keys[j * row_bytes], a.kv.latent + a.kv.slot(row, positions[j]) * row_bytes,
                row_bytes);
  const auto n_keys = static_cast<std::uint32_t>(positions.size());
  const BlockId block{0};
  const KvRowView gathered{.blocks = &block, .length = n_keys - n, .n_new = n};
  std::vector<float> q(n * a.n_heads * dim), out(q.size());
  for (std::uint32_t i = 0; i < n; ++i)
    join_query(a, row.first_token + first + i, &q[i * a.n_heads * dim]);
  KvLayerView view;
  view.k = view.v = keys.data();
  view.type = a.kv.type;
  view.n_kv_heads = 1;
  view.head_dim = static_cast<std::uint32_t>(dim);
  view.block_tokens = n_keys;
  view.rows = {&gathered, 1};
  attention(device, {.q = mat_view(q.data(), n, a.n_heads * view.head_dim),
                     .kv = view,
                     .n_heads = a.n_heads,
                     .scale = a.scale,
                     .out = mat_view(out.data(), n, a.n_heads * view.head_dim)});
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t h = 0; h < a.n_heads; ++h)
      std::memcpy(a.out.row(row.first_token + first + i) + h * a.kv.rank,
                  &out[(i * a.n_heads + h) * dim], a.kv.rank * sizeof(float));
  }
}

float mirror_product(const float* a, const float* b, std::size_t n) noexcept {
  float sum = 0.0f;
  for (std::size_t begin = 0; begin < n; begin += 32) {
    float chains[2] = {};
    for (std::size_t i = begin; i < std::min(begin + 32, n); ++i)
      chains[i % 2] = std::fma(a[i], b[i], chains[i % 2]);
    sum += chains[0] + chains[1];
  }
  return sum;
}

double oracle_product(const float* a, const float* b, std::size_t n) noexcept {
  double sum = 0.0;
  for (std::size_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

double index_score(const ops::IndexSelectArgs& a,
                   bool is_mirror,
                   const float* q,
                   const float* weights,
                   const float* key) noexcept {
  const std::size_t dim = a.kv.index_dim;
  double exact = 0.0;
  float sum = 0.0f;
  for (std::size_t h = 0; h < a.n_heads; ++h) {
    if (is_mirror) {
      const float s = mirror_product(key, q + h * dim, dim);
      sum = std::fma(weights[h], 0.0f > s ? 0.0f : s, sum);
    } else {
      const double s = oracle_product(key, q + h * dim, dim);
      exact += static_cast<double>(weights[h]) * (0.0 > s ? 0.0 : s);
    }
  }
  return is_mirror ? static_cast<double>(sum) : exact;
}

// The best top_k of [0, scores.size()): higher scores first, ties to the lower position, NaNs last.
std::vector<std::uint32_t> best(std::vector<double> scores, std::uint32_t top_k) {
  for (double& s : scores) s = std::isnan(s) ? -std::numeric_limits<double>::infinity() : s;
  std::vector<std::uint32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t i, std::uint32_t j) { return scores[i] > scores[j]; });
  order.resize(std::min<std::size_t>(order.size(), top_k));
  std::sort(order.begin(), order.end());
  return order;
}

void select_one(const ops::IndexSelectArgs& a,
                bool is_mirror,
                const KvRowView& row,
                std::uint32_t i) {
  const std::size_t token = row.first_token + i, dim = a.kv.index_dim;
  std::vector<float> q(a.q.row(token), a.q.row(token) + a.n_heads * dim), key(dim);
  if (is_mirror && a.kv.type != DType::f32)
    std::transform(q.begin(), q.end(), q.begin(), &round_to_bf16);
  std::vector<double> scores(row.length + i + 1);
  for (std::uint32_t p = 0; p < scores.size(); ++p) {
    const std::byte* from = a.kv.index + a.kv.slot(row, p) * dim * size_of(a.kv.type);
    for (std::size_t d = 0; d < dim; ++d) key[d] = load(a.kv.type, from, d);
    scores[p] = index_score(a, is_mirror, q.data(), a.weights.row(token), key.data());
  }
  const auto chosen = best(std::move(scores), a.top_k);
  std::copy(chosen.begin(), chosen.end(), &a.selected[token * a.top_k]);
}

}  // namespace

void latent_append(ops::Device&, const ops::LatentAppendArgs& a) noexcept {
  const std::size_t element = size_of(a.kv.type);
  for (const KvRowView& row : a.kv.rows) {
    for (std::uint32_t i = 0; i < row.n_new; ++i) {
      const std::size_t slot = a.kv.slot(row, row.length + i), token = row.first_token + i;
      std::byte* const to = a.kv.latent + slot * a.kv.dim() * element;
      store(a.kv.type, a.latent.row(token), a.kv.rank, to);
      store(a.kv.type, a.rope_key.row(token), a.kv.rope_dim, to + a.kv.rank * element);
      if (a.index_key.n_cols > 0)
        store(a.kv.type, a.index_key.row(token), a.kv.index_dim,
              a.kv.index + slot * a.kv.index_dim * element);
    }
  }
}

void latent_attention(ops::Device& device, const ops::LatentAttentionArgs& a) noexcept {
  for (const KvRowView& row : a.kv.rows) {
    if (row.n_new == 0) continue;
    if (a.selected.empty()) {
      std::vector<std::uint32_t> all(row.length + row.n_new);
      std::iota(all.begin(), all.end(), 0u);
      attend(device, a, row, 0, row.n_new, all);
      continue;
    }
    for (std::uint32_t i = 0; i < row.n_new; ++i) {
      const auto own = a.selected.subspan(std::size_t{row.first_token + i} * a.top_k,
                                          ops::n_selected(row.length + i, a.top_k));
      attend(device, a, row, i, 1, {own.begin(), own.end()});
    }
  }
}

void index_select(ops::Device& device, const ops::IndexSelectArgs& a) noexcept {
  const FloatModeScope mode;
  for (const KvRowView& row : a.kv.rows) {
    for (std::uint32_t i = 0; i < row.n_new; ++i)
      select_one(a, mode_of(device) == RefMode::mirror, row, i);
  }
}

}  // namespace kvasir::backend::ref
