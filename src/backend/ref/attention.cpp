// Attention in f64: scores of all visible keys, one softmax, one weighted sum.
#include <cmath>
#include <limits>
#include <vector>

#include "backend/ref/detail/kv_rows.h"
#include "backend/ref/detail/ref_ops.h"
#include "base/thread_pool.h"

namespace kvasir::backend::ref {
namespace {

double score(const ops::AttentionArgs& a, const float* q, const float* k) noexcept {
  double sum = 0.0;
  for (std::size_t d = 0; d < a.kv.head_dim; ++d)
    sum += static_cast<double>(q[d]) * static_cast<double>(k[d]);
  const double s = sum * static_cast<double>(a.scale), cap = static_cast<double>(a.softcap);
  return cap > 0.0 ? cap * std::tanh(s / cap) : s;
}

struct DecodedRows {
  std::vector<float> values;  // [end - begin, head_dim]
  bool is_rotated;
};
// Rows [begin, end) of one head.
DecodedRows decode_rows(const ops::AttentionArgs& a,
                        KvSide which,
                        const VisibleKeys& keys,
                        std::uint32_t head) {
  const KvEncodedSide side = side_of(a.kv, which, keys.row->is_encoded);
  DecodedRows out{std::vector<float>(std::size_t{keys.end - keys.begin} * a.kv.head_dim),
                  codec::is_rotated(side.codec)};
  for (std::uint32_t p = keys.begin; p < keys.end; ++p) {
    codec::decode_row(side.codec, row_at(a.kv, side, keys.row->blocks, head, p), a.kv.head_dim,
                      &out.values[std::size_t{p - keys.begin} * a.kv.head_dim]);
  }
  return out;
}

// k, v: decoded rows of positions from `first` on; the query sees [keys.begin, keys.end).
void attend(const ops::AttentionArgs& a,
            const VisibleKeys& keys,
            std::uint32_t first,
            const DecodedRows& k,
            const DecodedRows& v,
            std::uint32_t token,
            std::uint32_t head) {
  const std::size_t dim = a.kv.head_dim;
  const float* q = a.q.row(token) + head * dim;
  std::vector<double> p;
  double largest =
      a.sinks ? static_cast<double>(a.sinks[head]) : -std::numeric_limits<double>::infinity();
  for (std::size_t j = keys.begin; j < keys.end; ++j) {
    p.push_back(score(a, q, &k.values[(j - first) * dim]));
    largest = std::fmax(largest, p.back());
  }
  double sum = a.sinks ? std::exp(static_cast<double>(a.sinks[head]) - largest) : 0.0;
  for (double& x : p) sum += x = std::exp(x - largest);
  std::vector<double> out(dim, 0.0);
  for (std::size_t j = 0; j < p.size(); ++j) {
    const float* row = &v.values[(keys.begin - first + j) * dim];
    for (std::size_t d = 0; d < dim; ++d) out[d] += p[j] * static_cast<double>(row[d]);
  }
  if (v.is_rotated) codec::unrotate(out.data(), a.kv.head_dim);
  for (std::size_t d = 0; d < dim; ++d)
    a.out.row(token)[head * dim + d] = static_cast<float>(out[d] / sum);
}

VisibleKeys visible(const ops::AttentionArgs& a, const KvRowView& row, std::uint32_t i) noexcept {
  const std::uint32_t window = a.kv.window, n = row.length + row.n_new, next = row.length + i + 1;
  const std::uint32_t begin = window != 0 && next > window ? next - window : 0;
  if (!a.both_ways) return {&row, begin, next};
  return {&row, begin, window != 0 && window - 1 < n - next ? next + window - 1 : n};
}

void oracle_row(const ops::AttentionArgs& a, const KvRowView& row) {
  const std::uint32_t queries_per_kv = a.n_heads / a.kv.n_kv_heads;
  for (std::uint32_t kv_head = 0; kv_head < a.kv.n_kv_heads; ++kv_head) {
    VisibleKeys all = visible(a, row, 0);
    all.end = row.length + row.n_new;
    const auto k = decode_rows(a, KvSide::keys, all, kv_head),
               v = decode_rows(a, KvSide::values, all, kv_head);
    for (std::uint32_t i = 0; i < row.n_new; ++i) {
      for (std::uint32_t h = kv_head * queries_per_kv; h < (kv_head + 1) * queries_per_kv; ++h) {
        attend(a, visible(a, row, i), all.begin, k, v, row.first_token + i, h);
      }
    }
  }
}

void mirror_row(const ops::AttentionArgs& a, const KvRowView& row) {
  const std::uint32_t queries_per_kv = a.n_heads / a.kv.n_kv_heads;
  for (std::uint32_t kv_head = 0; kv_head < a.kv.n_kv_heads; ++kv_head) {
    const std::uint32_t begin = visible(a, row, 0).begin, end = row.length + row.n_new;
    const UnpackedRows k(a.kv, row, KvSide::keys, kv_head, begin, end),
        v(a.kv, row, KvSide::values, kv_head, begin, end);
    for (std::uint32_t i = 0; i < row.n_new; ++i) {
      for (std::uint32_t h = kv_head * queries_per_kv; h < (kv_head + 1) * queries_per_kv; ++h)
        mirror_attend(a, visible(a, row, i), k, v, row.first_token + i, h);
    }
  }
}

}  // namespace

void attention(ops::Device& device, const ops::AttentionArgs& a) noexcept {
  const FloatModeScope mode;
  for (const KvRowView& row : a.kv.rows) {
    mode_of(device) == RefMode::mirror ? mirror_row(a, row) : oracle_row(a, row);
  }
}

}  // namespace kvasir::backend::ref
