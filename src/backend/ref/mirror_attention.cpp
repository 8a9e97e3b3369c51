// One query head in the order of backend/cpu's attention (docs/numerics.md, "Attention").
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/ref/detail/mirror_math.h"
#include "backend/ref/detail/ref_ops.h"
#include "base/half.h"

namespace kvasir::backend::ref {
namespace {

constexpr std::uint32_t kTile = 64;

// Σ a·b over n elements by steps of 32: even and odd chains from zero, their sum added.
template <class A, class B>
float product(std::uint32_t n, A a, B b) noexcept {
  float sum = 0.0f;
  for (std::uint32_t begin = 0; begin < n; begin += 32) {
    float chains[2] = {};
    for (std::uint32_t i = begin; i < std::min(begin + 32, n); ++i) {
      chains[i % 2] = std::fma(a(i), b(i), chains[i % 2]);
    }
    sum += chains[0] + chains[1];
  }
  return sum;
}

struct Tile {
  float largest = -std::numeric_limits<float>::infinity();
  float sum = 0.0f;
  std::vector<float> out;  // [head_dim]
};

// Lanes i, i + 16, i + 32, i + 48 in order, then halves of 16, 8, 4, 2.
float sum_of_64(const float* p) noexcept {
  float lanes[16];
  for (int i = 0; i < 16; ++i) lanes[i] = ((p[i] + p[i + 16]) + p[i + 32]) + p[i + 48];
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

Tile attend_tile(const ops::AttentionArgs& a,
                 const VisibleKeys& keys,
                 const std::vector<float>& q,
                 std::uint32_t tile_begin,
                 std::uint32_t kv_head) {
  Tile tile;
  const std::uint32_t begin = std::max(keys.begin, tile_begin),
                      end = std::min(keys.end, tile_begin + kTile);
  float p[kTile] = {};
  for (std::uint32_t j = begin; j < end; ++j) {
    const auto k = [&](std::uint32_t d) {
      return kv_value(a.kv, a.kv.k, *keys.row, kv_head, j, d);
    };
    float s = product(a.kv.head_dim, k, [&](std::uint32_t d) { return q[d]; }) * a.scale;
    if (a.softcap > 0.0f) s = a.softcap * mirror_tanh(s / a.softcap);
    p[j - tile_begin] = s;
    tile.largest = std::max(tile.largest, s);
  }
  for (std::uint32_t j = begin; j < end; ++j)
    p[j - tile_begin] = mirror_exp(p[j - tile_begin] - tile.largest);
  tile.sum = sum_of_64(p);
  if (a.kv.type == DType::bf16) std::transform(p, p + kTile, p, &round_to_bf16);
  tile.out.resize(a.kv.head_dim);
  for (std::uint32_t d = 0; d < a.kv.head_dim; ++d) {
    const auto v = [&](std::uint32_t j) {
      const bool seen = tile_begin + j >= begin && tile_begin + j < end;
      return seen ? kv_value(a.kv, a.kv.v, *keys.row, kv_head, tile_begin + j, d) : 0.0f;
    };
    tile.out[d] = product(kTile, v, [&](std::uint32_t j) { return p[j]; });
  }
  return tile;
}

}  // namespace

void mirror_attend(const ops::AttentionArgs& a,
                   const VisibleKeys& keys,
                   std::uint32_t token,
                   std::uint32_t head) {
  const std::uint32_t dim = a.kv.head_dim, kv_head = head / (a.n_heads / a.kv.n_kv_heads);
  std::vector<float> q(a.q.row(token) + std::size_t{head} * dim,
                       a.q.row(token) + std::size_t{head + 1} * dim);
  if (a.kv.type == DType::bf16) std::transform(q.begin(), q.end(), q.begin(), &round_to_bf16);

  float largest = -std::numeric_limits<float>::infinity(), sum = 0.0f;
  std::vector<float> out(dim, 0.0f);
  for (std::uint32_t begin = keys.begin / kTile * kTile; begin < keys.end; begin += kTile) {
    const Tile tile = attend_tile(a, keys, q, begin, kv_head);
    const float merged = std::max(largest, tile.largest);
    const float keep = mirror_exp(largest - merged), add = mirror_exp(tile.largest - merged);
    for (std::uint32_t d = 0; d < dim; ++d) out[d] = std::fma(out[d], keep, tile.out[d] * add);
    sum = std::fma(sum, keep, tile.sum * add);
    largest = merged;
  }
  if (a.sinks) {
    const float merged = std::max(largest, a.sinks[head]);
    const float keep = mirror_exp(largest - merged);
    for (float& x : out) x *= keep;
    sum = std::fma(sum, keep, mirror_exp(a.sinks[head] - merged));
  }
  for (std::uint32_t d = 0; d < dim; ++d)
    a.out.row(token)[std::size_t{head} * dim + d] = out[d] / sum;
}

}  // namespace kvasir::backend::ref
