#include "ops/pick.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/philox.h"
#include "ops/float_lanes.h"

namespace kvasir::ops {
namespace {

using namespace lanes;

constexpr std::size_t kDrawBlock = 128;  // tokens a call of draw_block covers
constexpr std::size_t kChunk = 256;

struct DrawKey {
  std::array<std::uint32_t, 2> seed{};
  std::uint64_t position = 0;
};

DrawKey key_of(std::uint64_t seed, std::uint64_t position) noexcept {
  return {{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}, position};
}

std::uint32_t word_of(std::uint32_t token, const DrawKey& key) noexcept {
  return philox4x32({static_cast<std::uint32_t>(key.position),
                     static_cast<std::uint32_t>(key.position >> 32), token / 4, 0},
                    key.seed)[token % 4];
}

// ln of a normal number: x = m·2ᵉ, √½ ≤ m < √2, ln m = 2·atanh(s), s = (m − 1) / (m + 1) ≤ 0.172:
// the series to s²¹ leaves s²³/23. Near 1, e is 0 and m − 1 exact, so the result is as good as
// log1p's.
double log_of(double x) noexcept {
  constexpr std::int64_t kSqrtHalf = 0x3FE6A09E667F3BCD;  // the bits of √½
  constexpr double kLn2High = 0x1.62e42feep-1;            // few bits: e · kLn2High is exact
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  const auto bits = std::bit_cast<std::int64_t>(x);
  const std::int64_t exponent = (bits - kSqrtHalf) >> 52;
  const auto m = std::bit_cast<double>(bits - (exponent << 52));
  const auto e = static_cast<double>(exponent);
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double p = 1.0 / 21;
  for (const double term :
       {1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3})
    p = p * z + term;
  const double twice = s + s;
  return e * kLn2High + (twice + (twice * z * p + e * kLn2Low));
}

// Philox4x32-10 for the block's consecutive lanes (base/philox.h is the definition, and the test).
// Word k of lane l → out[4l + k]. Two vectors of lanes at a time hide the latency of the products.
KVASIR_INLINE void philox_lanes(std::uint32_t first_lane, const DrawKey& key, std::uint32_t* out) {
  constexpr std::uint32_t kCounters = kDrawBlock / 4;
  std::uint32_t c0[kCounters], c1[kCounters], c2[kCounters], c3[kCounters];
  for (std::uint32_t l = 0; l < kCounters; ++l) {
    c0[l] = static_cast<std::uint32_t>(key.position);
    c1[l] = static_cast<std::uint32_t>(key.position >> 32);
    c2[l] = first_lane + l;
    c3[l] = 0;
  }
  std::uint32_t k0 = key.seed[0], k1 = key.seed[1];
  for (int round = 0; round < 10; ++round) {
    for (std::size_t l = 0; l < kCounters; ++l) {
      const std::uint64_t a = std::uint64_t{0xD2511F53u} * c0[l];
      const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * c2[l];
      c0[l] = static_cast<std::uint32_t>(b >> 32) ^ c1[l] ^ k0;
      c1[l] = static_cast<std::uint32_t>(b);
      c2[l] = static_cast<std::uint32_t>(a >> 32) ^ c3[l] ^ k1;
      c3[l] = static_cast<std::uint32_t>(a);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (std::size_t l = 0; l < kCounters; ++l) {
    out[4 * l] = c0[l];
    out[4 * l + 1] = c1[l];
    out[4 * l + 2] = c2[l];
    out[4 * l + 3] = c3[l];
  }
}

// Upper bound of g(w) (SAMP-12): −log1p(−v) ≥ v, so g ≤ −ln v; and for f = m·2ᵉ, 1 ≤ m < 2, the
// float's bits read as a number are e + m − 1 + 127 ≤ log2 f + 127. kSlack covers the roundings,
// here and in the product beside it.
KVASIR_INLINE Floats gumbel_bound(Words w) {
  constexpr float kLn2 = 0x1.62e43p-1f, kSlack = 1e-3f;
  const Floats half =
      __builtin_convertvector(std::bit_cast<Ints>(w >> 1), Floats) + 0.25f;  // ≤ (w + 0.5) / 2
  const Floats log2_half =
      __builtin_convertvector(std::bit_cast<Ints>(half), Floats) * 0x1p-23f - 127.0f;
  return (31.0f - log2_half) * kLn2 + kSlack;
}
constexpr float kGumbelMax = 22.9f;  // of w = 0: −ln(0.5·2⁻³²) = 22.87, and slack

// For the up to kDrawBlock tokens from `first` (a multiple of it): their RNG words (SAMP-20, stream
// 0), and upper bounds of (x_i − top) · scale + g_i. False, with the outputs unspecified, if no
// token of the block can reach `best`.
KVASIR_CLONES bool draw_block(std::span<const float> x,
                              std::size_t first,
                              float top,
                              float scale,
                              float best,
                              const DrawKey& key,
                              std::array<std::uint32_t, kDrawBlock>& words,
                              std::array<float, kDrawBlock>& upper) noexcept {
  Ints hopeful{};
  for (std::size_t i = 0; i < kDrawBlock; i += kLanes) {
    const std::size_t at = first + i;
    const Floats v = at < x.size() ? load_some(&x[at], x.size() - at) : splat(kExcluded);
    const Floats scaled = (v - top) * scale;
    hopeful |= scaled >= best - kGumbelMax;
    store(&upper[i], scaled);
  }
  if (!any(hopeful)) return false;
  philox_lanes(static_cast<std::uint32_t>(first / 4), key, words.data());
  hopeful = Ints{};
  for (std::size_t i = 0; i < kDrawBlock; i += kLanes) {
    Words w;
    std::memcpy(&w, &words[i], sizeof w);
    const Floats bound = load(&upper[i]) + gumbel_bound(w);
    hopeful |= bound >= best;
    store(&upper[i], bound);
  }
  return any(hopeful);
}

}  // namespace

KVASIR_CLONES Peak find_peak(std::span<const float> x) noexcept {
  constexpr std::int32_t kExponent = 0x7F800000;
  Peak peak;
  Ints bad{};
  std::size_t best_chunk = 0;
  for (std::size_t first = 0; first < x.size(); first += kChunk) {
    const std::size_t n = std::min(kChunk, x.size() - first);
    Floats m = splat(kExcluded);
    for (std::size_t i = 0; i < n; i += kLanes) {
      const std::size_t left = n - i;
      const Floats v = load_some(&x[first + i], left);
      m = v > m ? v : m;
      Ints exponent = std::bit_cast<Ints>(v) & kExponent;
      for (std::size_t l = left; l < kLanes; ++l) exponent[l] = 0;
      bad |= exponent == kExponent;
    }
    const float chunk_max = max_lane(m);
    if (chunk_max > peak.max) {
      peak.max = chunk_max;
      best_chunk = first;
    }
  }
  peak.is_finite = !any(bad);
  std::size_t token = best_chunk;
  while (token + 1 < x.size() && x[token] != peak.max) ++token;
  peak.token = static_cast<std::uint32_t>(token);
  return peak;
}

double gumbel(std::uint32_t word) noexcept {
  const double v = std::min((word + 0.5) * 0x1p-32, 1.0 - 0x1p-24);
  return -log_of(-log_of(1.0 - v));  // 1 − v is exact
}

// Every token has its own random word, so most of the work is words and bounds, block by block; the
// logarithms are taken only for tokens whose bound reaches the best score so far, a few dozen a
// row.
std::uint32_t draw_scaled(std::span<const float> x,
                          const Peak& top,
                          float scale,
                          std::uint64_t seed,
                          std::uint64_t position) noexcept {
  KVASIR_CHECK(top.max > kExcluded) << "draw from nothing";
  const auto score = [&](std::uint32_t token, std::uint32_t word) {
    return static_cast<double>(x[token] - top.max) * static_cast<double>(scale) + gumbel(word);
  };

  const DrawKey key = key_of(seed, position);
  std::uint32_t winner = top.token;
  double best = score(winner, word_of(winner, key));
  std::array<std::uint32_t, kDrawBlock> words;
  std::array<float, kDrawBlock> upper;
  for (std::size_t first = 0; first < x.size(); first += kDrawBlock) {
    if (!draw_block(x, first, top.max, scale, static_cast<float>(best), key, words, upper))
      continue;
    const std::size_t n = std::min(kDrawBlock, x.size() - first);
    for (std::size_t i = 0; i < n; ++i) {
      if (!(upper[i] >= static_cast<float>(best))) continue;
      const auto token = static_cast<std::uint32_t>(first + i);
      const double s = score(token, words[i]);
      if (s > best || (s == best && token < winner)) {
        best = s;
        winner = token;
      }
    }
  }
  return winner;
}

std::uint32_t pick_token(std::span<const float> scores, const PickRow& row) noexcept {
  if (row.kind == PickKind::none) return kNoToken;
  const Peak peak = find_peak(scores);
  if (!peak.is_finite) return kNoToken;
  return row.kind == PickKind::highest
             ? peak.token
             : draw_scaled(scores, peak, row.scale, row.seed, row.position);
}

}  // namespace kvasir::ops
