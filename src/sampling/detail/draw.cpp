#include "sampling/detail/draw.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/philox.h"

namespace kvasir::sampling::detail {
namespace {

std::array<std::uint32_t, 2> key_of(std::uint64_t seed) noexcept {
  return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
}

PhiloxWords words_at(std::uint64_t seed,
                     std::uint64_t position,
                     std::uint32_t lane,
                     Stream stream) noexcept {
  return philox4x32(
      {static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32), lane,
       static_cast<std::uint32_t>(stream)},
      key_of(seed));
}

}  // namespace

double gumbel(std::uint32_t word) noexcept {
  const double v = std::min((word + 0.5) * 0x1p-32, 1.0 - 0x1p-24);
  return -std::log(-std::log1p(-v));
}

// Every token has its own random word, so most of the work is words and bounds, block by block; the
// logarithms are taken only for tokens whose bound reaches the best score so far, a few dozen a
// row.
TokenId draw_scaled(std::span<const float> x,
                    const Peak& top,
                    float scale,
                    std::uint64_t seed,
                    std::uint64_t position) noexcept {
  KVASIR_CHECK(top.max > kExcluded) << "draw from nothing";
  const auto score = [&](TokenId token, std::uint32_t word) {
    return static_cast<double>(x[token] - top.max) * static_cast<double>(scale) + gumbel(word);
  };

  TokenId winner = top.token;
  double best = score(winner, words_at(seed, position, winner / 4, Stream::draw)[winner % 4]);
  const DrawKey key{key_of(seed), position};
  std::array<std::uint32_t, kDrawBlock> words;
  std::array<float, kDrawBlock> upper;
  for (std::size_t first = 0; first < x.size(); first += kDrawBlock) {
    if (!draw_block(x, first, top.max, scale, static_cast<float>(best), key, words, upper))
      continue;
    const std::size_t n = std::min(kDrawBlock, x.size() - first);
    for (std::size_t i = 0; i < n; ++i) {
      if (!(upper[i] >= static_cast<float>(best))) continue;
      const auto token = static_cast<TokenId>(first + i);
      const double s = score(token, words[i]);
      if (s > best || (s == best && token < winner)) {
        best = s;
        winner = token;
      }
    }
  }
  return winner;
}

float scale_of(float temperature) noexcept {
  return std::min(1.0f / temperature, std::numeric_limits<float>::max());
}

TokenId draw_token(std::span<const float> x,
                   const Peak& top,
                   float temperature,
                   std::uint64_t seed,
                   std::uint64_t position) noexcept {
  return draw_scaled(x, top, scale_of(temperature), seed, position);
}

double xtc_uniform(std::uint64_t seed, std::uint64_t position) noexcept {
  return (words_at(seed, position, 0, Stream::xtc)[0] + 0.5) * 0x1p-32;
}

}  // namespace kvasir::sampling::detail
