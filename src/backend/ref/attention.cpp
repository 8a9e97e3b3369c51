// kv_append, and attention in f64: scores of all visible keys, one softmax, one weighted sum.
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "backend/ref/detail/ref_ops.h"
#include "base/half.h"
#include "base/thread_pool.h"

namespace kvasir::backend::ref {
namespace {

std::size_t place(const KvLayerView& kv,
                  const KvRowView& row,
                  std::uint32_t head,
                  std::uint32_t position) noexcept {
  return kv.offset(row.blocks[position / kv.block_tokens], head, position % kv.block_tokens);
}

void store(const KvLayerView& kv, std::byte* to, const float* values) noexcept {
  for (std::size_t d = 0; d < kv.head_dim; ++d) {
    if (kv.type == DType::f32) {
      std::memcpy(to + d * sizeof(float), values + d, sizeof(float));
    } else {
      const BFloat16 rounded = to_bf16(values[d]);
      std::memcpy(to + d * sizeof(rounded), &rounded, sizeof(rounded));
    }
  }
}

double score(const ops::AttentionArgs& a, const float* q, const float* k) noexcept {
  double sum = 0.0;
  for (std::size_t d = 0; d < a.kv.head_dim; ++d)
    sum += static_cast<double>(q[d]) * static_cast<double>(k[d]);
  const double s = sum * static_cast<double>(a.scale), cap = static_cast<double>(a.softcap);
  return cap > 0.0 ? cap * std::tanh(s / cap) : s;
}

// Rows [begin, end) of one head of a plane, decoded.
std::vector<float> decode_rows(const ops::AttentionArgs& a,
                               const std::byte* plane,
                               const VisibleKeys& keys,
                               std::uint32_t head) {
  std::vector<float> rows;
  rows.reserve(std::size_t{keys.end - keys.begin} * a.kv.head_dim);
  for (std::uint32_t p = keys.begin; p < keys.end; ++p) {
    for (std::uint32_t d = 0; d < a.kv.head_dim; ++d)
      rows.push_back(kv_value(a.kv, plane, *keys.row, head, p, d));
  }
  return rows;
}

// k, v: decoded rows of positions from `first` on; the query sees [keys.begin, keys.end).
void attend(const ops::AttentionArgs& a,
            const VisibleKeys& keys,
            std::uint32_t first,
            const std::vector<float>& k,
            const std::vector<float>& v,
            std::uint32_t token,
            std::uint32_t head) {
  const std::size_t dim = a.kv.head_dim;
  const float* q = a.q.row(token) + head * dim;
  std::vector<double> p;
  double largest =
      a.sinks ? static_cast<double>(a.sinks[head]) : -std::numeric_limits<double>::infinity();
  for (std::size_t j = keys.begin; j < keys.end; ++j) {
    p.push_back(score(a, q, &k[(j - first) * dim]));
    largest = std::fmax(largest, p.back());
  }
  double sum = a.sinks ? std::exp(static_cast<double>(a.sinks[head]) - largest) : 0.0;
  for (double& x : p) sum += x = std::exp(x - largest);
  std::vector<double> out(dim, 0.0);
  for (std::size_t j = 0; j < p.size(); ++j) {
    const float* row = &v[(keys.begin - first + j) * dim];
    for (std::size_t d = 0; d < dim; ++d) out[d] += p[j] * static_cast<double>(row[d]);
  }
  for (std::size_t d = 0; d < dim; ++d)
    a.out.row(token)[head * dim + d] = static_cast<float>(out[d] / sum);
}

VisibleKeys visible(const KvLayerView& kv, const KvRowView& row, std::uint32_t i) noexcept {
  const std::uint32_t end = row.length + i + 1;
  return {&row, kv.window != 0 && end > kv.window ? end - kv.window : 0, end};
}

void oracle_row(const ops::AttentionArgs& a, const KvRowView& row) {
  const std::uint32_t queries_per_kv = a.n_heads / a.kv.n_kv_heads;
  for (std::uint32_t kv_head = 0; kv_head < a.kv.n_kv_heads; ++kv_head) {
    VisibleKeys all = visible(a.kv, row, 0);
    all.end = row.length + row.n_new;
    const auto k = decode_rows(a, a.kv.k, all, kv_head), v = decode_rows(a, a.kv.v, all, kv_head);
    for (std::uint32_t i = 0; i < row.n_new; ++i) {
      for (std::uint32_t h = kv_head * queries_per_kv; h < (kv_head + 1) * queries_per_kv; ++h) {
        attend(a, visible(a.kv, row, i), all.begin, k, v, row.first_token + i, h);
      }
    }
  }
}

void mirror_row(const ops::AttentionArgs& a, const KvRowView& row) {
  for (std::uint32_t i = 0; i < row.n_new; ++i) {
    for (std::uint32_t h = 0; h < a.n_heads; ++h)
      mirror_attend(a, visible(a.kv, row, i), row.first_token + i, h);
  }
}

}  // namespace

float kv_value(const KvLayerView& kv,
               const std::byte* plane,
               const KvRowView& row,
               std::uint32_t head,
               std::uint32_t position,
               std::uint32_t d) noexcept {
  const std::byte* from = plane + place(kv, row, head, position) + d * size_of(kv.type);
  if (kv.type == DType::f32) {
    float value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  BFloat16 value;
  std::memcpy(&value, from, sizeof(value));
  return to_f32(value);
}

void kv_append(ops::Device&, const ops::KvAppendArgs& a) noexcept {
  for (const KvRowView& row : a.kv.rows) {
    for (std::uint32_t i = 0; i < row.n_new; ++i) {
      for (std::uint32_t h = 0; h < a.kv.n_kv_heads; ++h) {
        const std::size_t to = place(a.kv, row, h, row.length + i);
        store(a.kv, a.kv.k + to, a.k.row(row.first_token + i) + std::size_t{h} * a.kv.head_dim);
        store(a.kv, a.kv.v + to, a.v.row(row.first_token + i) + std::size_t{h} * a.kv.head_dim);
      }
    }
  }
}

void attention(ops::Device& device, const ops::AttentionArgs& a) noexcept {
  const FloatModeScope mode;
  for (const KvRowView& row : a.kv.rows) {
    mode_of(device) == RefMode::mirror ? mirror_row(a, row) : oracle_row(a, row);
  }
}

}  // namespace kvasir::backend::ref
