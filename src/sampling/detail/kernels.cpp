#include "sampling/detail/kernels.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "ops/float_lanes.h"

namespace kvasir::sampling::detail {
namespace {

using namespace ops::lanes;

KVASIR_INLINE void store_some(float* p, Floats v, std::size_t n) {
  std::memcpy(p, &v, std::min(n, kLanes) * sizeof(float));
}

KVASIR_INLINE std::array<Doubles, 2> widen(Floats v) {
  HalfFloats half[2];
  std::memcpy(half, &v, sizeof v);
  return {__builtin_convertvector(half[0], Doubles), __builtin_convertvector(half[1], Doubles)};
}
KVASIR_INLINE double sum_lanes(Doubles v) {
  return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

// exp(x) for x ≤ 0, within 1 ulp; 0 below −87 (where f32 ends). x = n·ln 2 + r, |r| ≤ ln 2 / 2;
// Taylor to r⁷/7! leaves r⁸/8! < 6e-9, a tenth of an ulp.
KVASIR_INLINE Floats exp_not_positive(Floats x) {
  constexpr float kSmallest = -87.0f;
  constexpr float kToInteger =
      0x1.8p23f;  // adding it rounds to the nearest integer, found in the low bits
  constexpr float kLn2High = 0x1.62ep-1f;  // few bits: n · kLn2High is exact
  constexpr float kLn2Low = 0x1.0bfbe8p-15f;
  const Floats c = x < kSmallest ? splat(kSmallest) : x;
  const Floats shifted = c * 0x1.715476p0f + kToInteger;
  const Ints n = std::bit_cast<Ints>(shifted) - std::bit_cast<std::int32_t>(kToInteger);
  const Floats whole = shifted - kToInteger;
  const Floats r = (c - whole * kLn2High) - whole * kLn2Low;
  Floats p = splat(1.0f / 5040);
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = (p * r) * r + r;
  const Floats two_to_n = std::bit_cast<Floats>((n + 127) << 23);
  return x < kSmallest ? Floats{} : (p + 1.0f) * two_to_n;
}

// ln(1 + u) for 0 ≤ u < 2¹²⁷, within a few ulp. 1 + u = m·2ᵉ, √½ ≤ m < √2, and ln m = 2·atanh(s), s
// = (m − 1) / (m + 1) ≤ 0.172: the series to s⁹ leaves s¹¹/11, under 2e-9 of it. What 1 + u lost in
// rounding comes back as its first-order term.
KVASIR_INLINE Floats log1p_not_negative(Floats u) {
  constexpr std::int32_t kSqrtHalf = 0x3F3504F3;  // the bits of √½
  constexpr float kLn2High = 0x1.62ep-1f;         // few bits: e · kLn2High is exact
  constexpr float kLn2Low = 0x1.0bfbe8p-15f;
  const Floats sum = u + 1.0f;
  const Floats lost = (u - (sum - 1.0f)) / sum;
  const Ints bits = std::bit_cast<Ints>(sum);
  const Ints exponent = (bits - kSqrtHalf) >> 23;
  const Floats m = std::bit_cast<Floats>(bits - (exponent << 23));
  const Floats e = __builtin_convertvector(exponent, Floats);
  const Floats s = (m - 1.0f) / (m + 1.0f);
  const Floats z = s * s;
  Floats p = splat(1.0f / 9);
  p = p * z + 1.0f / 7;
  p = p * z + 1.0f / 5;
  p = p * z + 1.0f / 3;
  const Floats twice = s + s;
  return e * kLn2High + (twice + (twice * z * p + (e * kLn2Low + lost)));
}

}  // namespace

KVASIR_CLONES double sum_exp(std::span<const float> x, float max) noexcept {
  Doubles total{};
  for (std::size_t first = 0; first < x.size(); first += kChunk) {
    const std::size_t n = std::min(kChunk, x.size() - first);
    Floats sum{};
    for (std::size_t i = 0; i < n; i += kLanes)
      sum += exp_not_positive(load_some(&x[first + i], n - i) - max);
    const auto wide = widen(sum);
    total += wide[0] + wide[1];
  }
  return sum_lanes(total);
}

KVASIR_CLONES double mean_below_max(std::span<const float> x, float max) noexcept {
  Doubles total{}, weighted{};
  for (std::size_t first = 0; first < x.size(); first += kChunk) {
    const std::size_t n = std::min(kChunk, x.size() - first);
    Floats sum{}, product{};
    for (std::size_t i = 0; i < n; i += kLanes) {
      const Floats below = load_some(&x[first + i], n - i) - max;
      const Floats p = exp_not_positive(below);
      sum += p;
      product += p != 0.0f ? p * below : Floats{};  // an excluded token's is 0 · −∞
    }
    const auto sums = widen(sum), products = widen(product);
    total += sums[0] + sums[1];
    weighted += products[0] + products[1];
  }
  return sum_lanes(weighted) / sum_lanes(total);
}

KVASIR_CLONES void bend(std::span<const float> x,
                        float max,
                        const Bend& curve,
                        std::span<float> out) noexcept {
  constexpr float kNever = 1e38f;  // a knee no score reaches; also more than any u need be
  const bool has_shoulder = curve.shoulder > 0, has_toe = curve.toe > 0;
  const float high = has_shoulder ? curve.width : kNever, low = has_toe ? curve.width : kNever;
  const Floats shoulder = splat(has_shoulder ? curve.shoulder : 1.0f);
  const Floats toe = splat(has_toe ? curve.toe : 1.0f);
  for (std::size_t i = 0; i < x.size(); i += kLanes) {
    const std::size_t left = x.size() - i;
    const Floats v = load_some(&x[i], left);
    const Floats z = (v - max) - curve.pivot;
    const Floats beta = z >= 0.0f ? shoulder : toe;
    Floats beyond = z >= 0.0f ? z - high : -z - low;  // the knee on its side
    beyond = beyond > 0.0f ? beyond : Floats{};
    Floats u = beyond / beta;
    u = u < kNever ? u : splat(kNever);
    const Floats tail = beta * log1p_not_negative(u);
    Floats middle = z < high ? z : splat(high);
    middle = middle > -low ? middle : splat(-low);
    const Floats y = z >= 0.0f ? middle + tail : middle - tail;
    store_some(&out[i], v == kExcluded ? v : y, left);
  }
}

KVASIR_CLONES void log_softmax(std::span<const float> x,
                               float max,
                               float log_sum,
                               std::span<float> out) noexcept {
  for (std::size_t i = 0; i < x.size(); i += kLanes) {
    store_some(&out[i], (load_some(&x[i], x.size() - i) - max) - log_sum, x.size() - i);
  }
}

KVASIR_CLONES void probabilities(std::span<const float> x,
                                 float max,
                                 float log_sum,
                                 std::span<float> out) noexcept {
  for (std::size_t i = 0; i < x.size(); i += kLanes) {
    const Floats lp = (load_some(&x[i], x.size() - i) - max) - log_sum;
    store_some(&out[i], exp_not_positive(lp), x.size() - i);
  }
}

KVASIR_CLONES std::array<double, kBounds> masses_from(
    std::span<const float> p,
    std::span<const float> x,
    const std::array<float, kBounds>& bounds) noexcept {
  std::array<Doubles, kBounds> sums{};
  for (std::size_t i = 0; i < x.size(); i += kLanes) {
    const std::size_t left = x.size() - i;
    const auto scores = widen(load_some(&x[i], left));
    const auto mass = widen(load_some(&p[i], left));
    for (std::size_t half = 0; half < 2; ++half) {
      const Doubles rounded = (mass[half] + 6.0) - 6.0;
      for (std::size_t b = 0; b < kBounds; ++b) {
        sums[b] += scores[half] >= static_cast<double>(bounds[b]) ? rounded : Doubles{};
      }
    }
  }
  std::array<double, kBounds> out;
  for (std::size_t b = 0; b < kBounds; ++b) out[b] = sum_lanes(sums[b]);
  return out;
}

KVASIR_CLONES std::size_t list_between(std::span<const float> x,
                                       float from,
                                       float to,
                                       std::span<TokenId> out) noexcept {
  std::size_t n_out = 0;
  for (std::size_t i = 0; i < x.size(); i += kLanes) {
    const std::size_t left = x.size() - i;
    const Floats v = load_some(&x[i], left);
    const Ints inside = (v >= from) & (v < to);
    if (!any(inside)) continue;
    for (std::size_t l = 0; l < std::min(left, kLanes); ++l) {
      out[n_out] =
          static_cast<TokenId>(i + l);  // stays if it counts; n_out ≤ i + l, so this is in bounds
      n_out += inside[l] != 0;
    }
  }
  return n_out;
}

KVASIR_CLONES void apply_mask(std::span<const float> x,
                              std::span<const std::uint32_t> words,
                              std::span<float> out) noexcept {
  constexpr Words kBits = {1u << 0,  1u << 1,  1u << 2,  1u << 3, 1u << 4,  1u << 5,
                           1u << 6,  1u << 7,  1u << 8,  1u << 9, 1u << 10, 1u << 11,
                           1u << 12, 1u << 13, 1u << 14, 1u << 15};
  for (std::size_t i = 0; i < x.size(); i += kLanes) {
    const std::uint32_t word = i / 32 < words.size() ? words[i / 32] >> (i % 32) : 0;
    const std::size_t left = x.size() - i;
    const Floats v = (kBits & word) != 0 ? load_some(&x[i], left) : splat(kExcluded);
    store_some(&out[i], v, left);
  }
}

KVASIR_CLONES void exclude_below(std::span<float> x, Cutoff cutoff) noexcept {
  const std::size_t border =
      std::min<std::size_t>(cutoff.last / kLanes * kLanes, x.size());  // the vector `last` is in
  for (std::size_t i = 0; i < border; i += kLanes) {
    const Floats v = load(&x[i]);
    store(&x[i], v >= cutoff.score ? v : splat(kExcluded));
  }
  const std::size_t after = std::min(border + kLanes, x.size());
  for (std::size_t i = border; i < after; ++i) {
    const bool stays = x[i] > cutoff.score || (x[i] == cutoff.score && i <= cutoff.last);
    x[i] = stays ? x[i] : kExcluded;
  }
  for (std::size_t i = after; i < x.size(); i += kLanes) {
    const Floats v = load_some(&x[i], x.size() - i);
    store_some(&x[i], v > cutoff.score ? v : splat(kExcluded), x.size() - i);
  }
}

KVASIR_CLONES std::size_t exclude_unlikely(std::span<float> x,
                                           float max,
                                           float log_sum,
                                           float limit) noexcept {
  Ints count{};  // −1 a token that stays
  for (std::size_t i = 0; i < x.size(); i += kLanes) {
    const std::size_t left = x.size() - i;
    const Floats v = load_some(&x[i], left);
    const Ints stays = (v - max) - log_sum >= limit;
    count += stays;
    store_some(&x[i], stays ? v : splat(kExcluded), left);
  }
  std::int64_t total = 0;
  for (std::size_t l = 0; l < kLanes; ++l) total -= count[l];
  return static_cast<std::size_t>(total);
}

KVASIR_CLONES void group_maxima(std::span<const float> x, std::span<float> groups) noexcept {
  std::size_t group = 0;
  for (std::size_t first = 0; first < x.size(); first += kChunk, group += kLanes) {
    const std::size_t n = std::min(kChunk, x.size() - first);
    Floats m = splat(kExcluded);
    for (std::size_t i = 0; i < n; i += kLanes) {
      const Floats v = load_some(&x[first + i], n - i);
      m = v > m ? v : m;
    }
    store(&groups[group], m);
  }
}

}  // namespace kvasir::sampling::detail
