#include "model/detail/reference_ties.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "base/half.h"

namespace kvasir::model {
namespace {

float element(DType type, const std::byte* from, std::size_t i) noexcept {
  float value;
  BFloat16 half;
  if (type == DType::f32) return std::memcpy(&value, from + 4 * i, 4), value;
  return std::memcpy(&half, from + 2 * i, 2), to_f32(half);
}

float score(const ops::IndexSelectArgs& a,
            const KvRowView& row,
            std::size_t token,
            std::uint32_t position) noexcept {
  const std::size_t dim = a.kv.index_dim;
  const std::byte* const key = a.kv.index + a.kv.slot(row, position) * dim * size_of(a.kv.type);
  float sum = 0.0f;
  for (std::size_t h = 0; h < a.n_heads; ++h) {
    float s = 0.0f;
    for (std::size_t d = 0; d < dim; ++d)
      s += a.q.row(token)[h * dim + d] * element(a.kv.type, key, d);
    sum += a.weights.row(token)[h] * std::max(s, 0.0f);
  }
  return sum;
}

void select_one(const ops::IndexSelectArgs& a, const KvRowView& row, std::uint32_t i) {
  const std::uint32_t n_keys = row.length + row.n_new, own = row.length + i;
  const std::size_t token = row.first_token + i, k = std::min(a.top_k, n_keys);
  std::vector<std::pair<float, std::uint32_t>> keys;
  for (std::uint32_t p = 0; p < n_keys; ++p)
    keys.emplace_back(p <= own ? score(a, row, token, p) : -std::numeric_limits<float>::infinity(),
                      p);
  std::nth_element(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(k - 1), keys.end(),
                   [](const auto& x, const auto& y) { return x.first > y.first; });
  std::vector<std::uint32_t> chosen;
  for (std::size_t j = 0; j < k; ++j) {
    if (keys[j].second <= own) chosen.push_back(keys[j].second);
  }
  std::sort(chosen.begin(), chosen.end());
  std::copy(chosen.begin(), chosen.end(), &a.selected[token * a.top_k]);
}

}  // namespace

ReferenceTies::ReferenceTies(ops::Device& inner) : WrappedDevice(inner) {
  table_.index_select = [](ops::Device&, const ops::IndexSelectArgs& args) noexcept {
    for (const KvRowView& row : args.kv.rows) {
      for (std::uint32_t i = 0; i < row.n_new; ++i) select_one(args, row, i);
    }
  };
}

}  // namespace kvasir::model
