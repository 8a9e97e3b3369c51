#include "sampling/detail/draw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/philox.h"
#include "sampling/detail/kernels.h"

namespace kvasir::sampling::detail {
namespace {

// SAMP-12 as written, every token on its own.
TokenId naive_draw(std::span<const float> x,
                   float temperature,
                   std::uint64_t seed,
                   std::uint64_t position) {
  float top = kExcluded;
  for (float v : x) top = std::max(top, v);
  TokenId winner = 0;
  double best = -std::numeric_limits<double>::infinity();
  for (TokenId i = 0; i < x.size(); ++i) {
    if (x[i] == kExcluded) continue;
    const auto words =
        philox4x32({static_cast<std::uint32_t>(position),
                    static_cast<std::uint32_t>(position >> 32), i / 4, 0},
                   {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    const double v = std::min((words[i % 4] + 0.5) * 0x1p-32, 1.0 - 0x1p-24);
    const double s = static_cast<double>(x[i] - top) * static_cast<double>(1.0f / temperature) -
                     std::log(-std::log1p(-v));
    if (s > best) {
      best = s;
      winner = i;
    }
  }
  return winner;
}

TokenId draw(std::span<const float> x,
             float temperature,
             std::uint64_t seed,
             std::uint64_t position) {
  return draw_token(x, find_peak(x), temperature, seed, position);
}

std::vector<float> random_row(std::size_t n, float spread, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> x(n);
  for (float& v : x) v = normal(rng);
  return x;
}

TEST(DrawToken, EqualsTheDefinitionForEveryLengthAndSpread) {  // SAMP-12
  for (std::size_t n : {1u, 3u, 16u, 63u, 64u, 65u, 300u, 5000u}) {
    for (float spread : {0.0f, 0.5f, 3.0f, 20.0f}) {
      const auto x = random_row(n, spread, static_cast<unsigned>(n));
      for (std::uint64_t position = 0; position < 20; ++position) {
        const std::uint64_t seed = 0x123456789ABCDEFull + position * n;

        EXPECT_EQ(draw(x, 0.8f, seed, position), naive_draw(x, 0.8f, seed, position))
            << n << ' ' << spread;
      }
    }
  }
}

TEST(DrawToken, UsesAllSixtyFourBitsOfSeedAndPosition) {  // SAMP-20
  const std::vector<float> flat(4096, 0.0f);
  for (std::uint64_t bit = 0; bit < 64; bit += 9) {
    const std::uint64_t at = std::uint64_t{1} << bit;

    EXPECT_EQ(draw(flat, 1, at, 5), naive_draw(flat, 1, at, 5));
    EXPECT_EQ(draw(flat, 1, 5, at), naive_draw(flat, 1, 5, at));
    EXPECT_NE(draw(flat, 1, at, 5), draw(flat, 1, 0, 5));
    EXPECT_NE(draw(flat, 1, 5, at), draw(flat, 1, 5, 0));
  }
}

TEST(DrawToken,
     KeepsItsWordWhenOthersAreExcluded) {  // SAMP-12: independent of the filters' bookkeeping
  auto x = random_row(1000, 1, 3);
  const TokenId winner = draw(x, 1, 7, 0);
  for (TokenId i = 0; i < x.size(); ++i) {
    if (i != winner && i % 3 != 0) x[i] = kExcluded;
  }

  EXPECT_EQ(draw(x, 1, 7, 0), winner);
}

TEST(DrawToken, NeverPicksAnExcludedToken) {
  std::vector<float> x(500, kExcluded);
  x[137] = -1e30f;

  for (std::uint64_t position = 0; position < 50; ++position)
    EXPECT_EQ(draw(x, 1.5f, 1, position), 137u);
}

TEST(DrawToken, IsArgmaxAtTheSmallestTemperatures) {  // C10
  auto x = random_row(3000, 2, 9);
  const TokenId top = find_peak(x).token;
  for (float t : {1e-30f, 1e-38f, 1e-45f}) {
    for (std::uint64_t position = 0; position < 20; ++position)
      EXPECT_EQ(draw(x, t, 42, position), top) << t;
  }
}

TEST(DrawToken, StandsTheLargestTemperature) {
  const auto x = random_row(300, 5, 4);

  EXPECT_LT(draw(x, std::numeric_limits<float>::max(), 1, 1), 300u);
}

// χ² of 10⁶ draws: 11 degrees of freedom, 99.99 % quantile 37.4. Fixed seeds, so this cannot
// flicker.
TEST(DrawToken, MillionDrawsFollowTheDistribution) {  // SAMP-23
  const std::vector<float> x{0.0f,  -0.3f, -1.0f, -1.0f, -2.0f, 0.4f,
                             -3.0f, -4.0f, 0.1f,  -2.5f, -0.7f, -5.0f};
  constexpr float kTemperature = 1.3f;
  constexpr int kDraws = 1'000'000;
  std::vector<int> seen(x.size());
  for (std::uint64_t i = 0; i < kDraws; ++i) ++seen[draw(x, kTemperature, 99, i)];

  double sum = 0, chi2 = 0;
  for (float v : x) sum += std::exp(static_cast<double>(v / kTemperature));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = kDraws * std::exp(static_cast<double>(x[i] / kTemperature)) / sum;
    chi2 += (seen[i] - expected) * (seen[i] - expected) / expected;
  }
  EXPECT_LT(chi2, 37.4);
}

TEST(Gumbel, IsFiniteAtBothEnds) {
  EXPECT_NEAR(gumbel(0), 22.8739, 1e-3);
  EXPECT_NEAR(gumbel(0xFFFFFFFFu), -std::log(24 * std::log(2.0)), 1e-9);
}

TEST(XtcUniform, HasItsOwnStream) {  // SAMP-21
  EXPECT_EQ(xtc_uniform(0, 0), (philox4x32({0, 0, 0, 1}, {0, 0})[0] + 0.5) * 0x1p-32);
}

}  // namespace
}  // namespace kvasir::sampling::detail
