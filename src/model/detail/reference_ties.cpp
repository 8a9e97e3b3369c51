#include "model/detail/reference_ties.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/half.h"

namespace kvasir::model {
namespace {

float element(DType type, const std::byte* from, std::size_t i) noexcept {
  float value;
  BFloat16 half;
  if (type == DType::f32) return std::memcpy(&value, from + 4 * i, 4), value;
  return std::memcpy(&half, from + 2 * i, 2), to_f32(half);
}

// What a row's choice needs, in host memory wherever the device keeps it.
struct RowOnHost {
  std::vector<std::byte> keys;          // [positions, index_dim] in the plane's type
  std::vector<float> queries, weights;  // of its new tokens
};

RowOnHost read_row(ops::Device& device, const ops::IndexSelectArgs& a, const KvRowView& row) {
  const std::size_t n_keys = row.length + row.n_new, key = a.kv.index_dim * size_of(a.kv.type);
  RowOnHost out;
  out.keys.resize(n_keys * key);
  for (std::uint32_t p = 0; p < n_keys; ++p)
    device.copy(&out.keys[p * key], a.kv.index + a.kv.slot(row, p) * key, key);
  const auto read = [&](ConstMatView m, std::vector<float>& to) {
    to.resize(std::size_t{row.n_new} * m.n_cols);
    for (std::size_t i = 0; i < row.n_new; ++i) {
      device.copy(reinterpret_cast<std::byte*>(&to[i * m.n_cols]),
                  reinterpret_cast<const std::byte*>(m.row(row.first_token + i)),
                  m.n_cols * sizeof(float));
    }
  };
  read(a.q, out.queries);
  read(a.weights, out.weights);
  const Status done = device.synchronize();
  KVASIR_CHECK(done.has_value()) << done.error().what;
  return out;
}

float score(const ops::IndexSelectArgs& a,
            const RowOnHost& row,
            std::size_t i,
            std::uint32_t position) noexcept {
  const std::size_t dim = a.kv.index_dim;
  const std::byte* const key = &row.keys[position * dim * size_of(a.kv.type)];
  const float* const q = &row.queries[i * a.n_heads * dim];
  float sum = 0.0f;
  for (std::size_t h = 0; h < a.n_heads; ++h) {
    float s = 0.0f;
    for (std::size_t d = 0; d < dim; ++d) s += q[h * dim + d] * element(a.kv.type, key, d);
    sum += row.weights[i * a.n_heads + h] * std::max(s, 0.0f);
  }
  return sum;
}

void select_one(ops::Device& device,
                const ops::IndexSelectArgs& a,
                const KvRowView& row,
                const RowOnHost& on_host,
                std::uint32_t i) {
  const std::uint32_t n_keys = row.length + row.n_new, own = row.length + i;
  const std::size_t token = row.first_token + i, k = std::min(a.top_k, n_keys);
  std::vector<std::pair<float, std::uint32_t>> keys;
  for (std::uint32_t p = 0; p < n_keys; ++p)
    keys.emplace_back(p <= own ? score(a, on_host, i, p) : -std::numeric_limits<float>::infinity(),
                      p);
  std::nth_element(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(k - 1), keys.end(),
                   [](const auto& x, const auto& y) { return x.first > y.first; });
  std::vector<std::uint32_t> chosen;
  for (std::size_t j = 0; j < k; ++j) {
    if (keys[j].second <= own) chosen.push_back(keys[j].second);
  }
  std::sort(chosen.begin(), chosen.end());
  device.copy(reinterpret_cast<std::byte*>(a.selected.data() + token * a.top_k),
              reinterpret_cast<const std::byte*>(chosen.data()),
              chosen.size() * sizeof(std::uint32_t));
  const Status done = device.synchronize();
  KVASIR_CHECK(done.has_value()) << done.error().what;
}

}  // namespace

ReferenceTies::ReferenceTies(ops::Device& inner) : WrappedDevice(inner) {
  table_.index_select = [](ops::Device& device, const ops::IndexSelectArgs& args) noexcept {
    for (const KvRowView& row : args.kv.rows) {
      const RowOnHost on_host = read_row(device, args, row);
      for (std::uint32_t i = 0; i < row.n_new; ++i) select_one(device, args, row, on_host, i);
    }
  };
}

}  // namespace kvasir::model
