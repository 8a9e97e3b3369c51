// One query head in the order of backend/cpu's attention (docs/numerics.md, "Attention").
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/ref/detail/kv_rows.h"
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

// Keys of one tile that a query sees, positions from the tile's first on.
struct TileKeys {
  std::uint32_t tile, begin, end;
};

// Σ q of each group: the same product with all codes 1.
std::vector<float> group_sums(const UnpackedRows& k, const std::vector<float>& q) {
  std::vector<float> sums(k.n_groups);
  for (std::uint32_t g = 0; g < k.n_groups; ++g) {
    sums[g] = product(
        k.group, [](std::uint32_t) { return 1.0f; },
        [&](std::uint32_t d) { return q[g * k.group + d]; });
  }
  return sums;
}

float score(const UnpackedRows& k,
            std::uint32_t position,
            const std::vector<float>& q,
            const std::vector<float>& sums) noexcept {
  const float* const codes = k.row_codes(position);
  const auto group_product = [&](std::uint32_t begin, std::uint32_t n) {
    return product(
        n, [&](std::uint32_t d) { return codes[begin + d]; },
        [&](std::uint32_t d) { return q[begin + d]; });
  };
  if (k.is_exact) return group_product(0, k.dim);
  float sum = 0.0f;
  for (std::uint32_t g = 0; g < k.n_groups; ++g) {
    sum = std::fma(k.scale(position, g), group_product(g * k.group, k.group), sum);
    if (k.has_offsets) sum = std::fma(k.offset(position, g), sums[g], sum);
  }
  return sum;
}

// Σ p · offset of group g over the tile: lanes j mod 16 ascending, then halves.
float weigh_offsets(const UnpackedRows& v, const TileKeys& keys, const float* p, std::uint32_t g) {
  float lanes[16] = {};
  for (std::uint32_t j = keys.begin; j < keys.end; ++j)
    lanes[j % 16] = std::fma(p[j], v.offset(keys.tile + j, g), lanes[j % 16]);
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// Columns of one group: the keys' probabilities take in their scales of the group, then meet its
// codes.
void weigh_group(const UnpackedRows& v,
                 const TileKeys& keys,
                 const float* p,
                 bool rounds,
                 std::uint32_t g,
                 float* out) {
  float weights[kTile] = {};
  for (std::uint32_t j = keys.begin; j < keys.end; ++j) {
    weights[j] = v.is_exact ? p[j] : p[j] * v.scale(keys.tile + j, g);
    if (rounds) weights[j] = round_to_bf16(weights[j]);
  }
  for (std::uint32_t d = g * v.group; d < (g + 1) * v.group; ++d) {
    const auto code = [&](std::uint32_t j) {
      return j >= keys.begin && j < keys.end ? v.row_codes(keys.tile + j)[d] : 0.0f;
    };
    out[d] = product(kTile, code, [&](std::uint32_t j) { return weights[j]; });
  }
  if (!v.has_offsets) return;
  const float offset = weigh_offsets(v, keys, p, g);
  for (std::uint32_t d = g * v.group; d < (g + 1) * v.group; ++d) out[d] += offset;
}

Tile attend_tile(const ops::AttentionArgs& a,
                 const TileKeys& keys,
                 const UnpackedRows& k,
                 const UnpackedRows& v,
                 const std::vector<float>& q,
                 const std::vector<float>& sums) {
  Tile tile;
  float p[kTile] = {};
  for (std::uint32_t j = keys.begin; j < keys.end; ++j) {
    float s = score(k, keys.tile + j, q, sums) * a.scale;
    if (a.softcap > 0.0f) s = a.softcap * mirror_tanh(s / a.softcap);
    p[j] = s;
    tile.largest = std::max(tile.largest, s);
  }
  for (std::uint32_t j = keys.begin; j < keys.end; ++j) p[j] = mirror_exp(p[j] - tile.largest);
  tile.sum = sum_of_64(p);
  tile.out.resize(a.kv.head_dim);
  for (std::uint32_t g = 0; g < std::max(v.n_groups, 1u); ++g)
    weigh_group(v, keys, p, a.kv.type == DType::bf16, g, tile.out.data());
  return tile;
}

}  // namespace

void mirror_attend(const ops::AttentionArgs& a,
                   const VisibleKeys& keys,
                   const UnpackedRows& k,
                   const UnpackedRows& v,
                   std::uint32_t token,
                   std::uint32_t head) {
  const std::uint32_t dim = a.kv.head_dim;
  std::vector<float> q(a.q.row(token) + std::size_t{head} * dim,
                       a.q.row(token) + std::size_t{head + 1} * dim);
  if (a.kv.type == DType::bf16) std::transform(q.begin(), q.end(), q.begin(), &round_to_bf16);
  const std::vector<float> sums = group_sums(k, q);

  float largest = -std::numeric_limits<float>::infinity(), sum = 0.0f;
  std::vector<float> out(dim, 0.0f);
  for (std::uint32_t begin = keys.begin / kTile * kTile; begin < keys.end; begin += kTile) {
    const TileKeys seen{begin, std::max(keys.begin, begin) - begin,
                        std::min(keys.end, begin + kTile) - begin};
    const Tile tile = attend_tile(a, seen, k, v, q, sums);
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
  if (v.is_rotated) codec::unrotate(a.out.row(token) + std::size_t{head} * dim, dim);
}

}  // namespace kvasir::backend::ref
