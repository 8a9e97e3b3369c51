#include "sampling/detail/filters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace kvasir::sampling::detail {
namespace {

using testing::ElementsAre;

std::vector<float> logs(std::vector<double> p) {
  std::vector<float> x;
  for (double v : p) x.push_back(static_cast<float>(std::log(v)));
  return x;
}

std::vector<TokenId> left(std::span<const float> x) {
  std::vector<TokenId> ids;
  for (TokenId i = 0; i < x.size(); ++i) {
    if (x[i] != kExcluded) ids.push_back(i);
  }
  return ids;
}

Normalizer norm_of(std::span<const float> x) { return normalizer_of(x, find_peak(x).max); }

std::vector<TokenId> top_p(std::vector<float> x, float p) {
  FilterScratch scratch;
  keep_top_p(x, norm_of(x), p, scratch);
  return left(x);
}
std::vector<TokenId> min_p(std::vector<float> x, float p, std::uint32_t keep = 1) {
  FilterScratch scratch;
  keep_min_p(x, norm_of(x), p, keep, scratch);
  return left(x);
}
std::vector<TokenId> top_k(std::vector<float> x, std::size_t k) {
  FilterScratch scratch;
  keep_top_k(x, k, scratch);
  return left(x);
}
std::vector<TokenId> xtc(std::vector<float> x, float threshold, std::vector<TokenId> spared = {}) {
  FilterScratch scratch;
  drop_top_choices(x, threshold, spared, scratch);
  return left(x);
}

// Rows of many ties, sometimes with excluded tokens.
std::vector<float> random_row(std::size_t n, float spread, unsigned seed, bool with_excluded) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> x(n);
  for (float& v : x) v = std::round(normal(rng) * 8) / 8;
  for (std::size_t i = 0; with_excluded && i < n; i += 3) x[i] = kExcluded;
  return x;
}

std::vector<TokenId> ascending_order(std::span<const float> x) {  // SAMP-8's: ties, higher id first
  std::vector<TokenId> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](TokenId a, TokenId b) { return x[a] != x[b] ? x[a] < x[b] : a > b; });
  return order;
}

TEST(TopP, KeepsTokensWhoseAscendingSumPassesTheRest) {
  const auto x = logs({0.1, 0.4, 0.2, 0.3});  // ascending sums: 0.1, 0.3, 0.6, 1

  EXPECT_THAT(top_p(x, 0.85f), ElementsAre(1, 2, 3));
  EXPECT_THAT(top_p(x, 0.65f), ElementsAre(1, 3));
  EXPECT_THAT(top_p(x, 0.95f), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(top_p(x, 1e-6f), ElementsAre(1));
}

TEST(TopP, DropsATokenWhoseSumEqualsTheBorder) {  // cum == 1 − p
  const auto x = logs({0.25, 0.5, 0.125, 0.125});

  EXPECT_THAT(top_p(x, 0.5f), ElementsAre(1));      // sums 0.125, 0.25, 0.5, 1 against 0.5
  EXPECT_THAT(top_p(x, 0.75f), ElementsAre(0, 1));  // against 0.25
  EXPECT_THAT(
      top_p(x, 0.875f),
      ElementsAre(0, 1, 2));  // of the tied ones id 3 comes first, and its sum is just 0.125
}

TEST(TopP, KeepsTheLowerIdsOfEqualTokens) {
  EXPECT_THAT(top_p(std::vector<float>(8, 1.0f), 0.5f), ElementsAre(0, 1, 2, 3));
}

TEST(TopP, DoesNotRenormaliseAfterAMask) {
  auto x = logs({0.5, 0.25, 0.125, 0.125});
  const Normalizer before = norm_of(x);
  x[0] = kExcluded;
  FilterScratch scratch;
  keep_top_p(x, before, 0.6f, scratch);  // sums 0.125, 0.25, 0.5 against 0.4

  EXPECT_THAT(left(x), ElementsAre(1));
}

TEST(TopP, KeepsTheTopEvenIfAMaskLeftTooLittle) {
  auto x = logs({0.98, 0.01, 0.005, 0.005});
  const Normalizer before = norm_of(x);
  x[0] = kExcluded;
  FilterScratch scratch;
  keep_top_p(x, before, 0.5f, scratch);

  EXPECT_THAT(left(x), ElementsAre(1));
}

TEST(TopP, EqualsAFullSortOnRandomRows) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const float spread = std::array{0.0f, 0.3f, 2.0f, 6.0f}[seed % 4];
    const auto x = random_row(1 + seed * 13, spread, seed, seed % 5 == 0 && seed > 0);
    const float p = static_cast<float>(seed % 19 + 1) / 20.0f;
    const Normalizer norm = norm_of(x);
    std::vector<float> prob(x.size());
    probabilities(x, norm.max, norm.log_sum, prob);
    double cumulative = 0;
    std::vector<TokenId> expected;
    const auto order = ascending_order(x);
    for (TokenId t : order) {
      cumulative += round_mass(prob[t]);
      if (x[t] != kExcluded && (cumulative > 1.0 - static_cast<double>(p) || t == order.back()))
        expected.push_back(t);
    }
    std::sort(expected.begin(), expected.end());

    EXPECT_EQ(top_p(x, p), expected) << "seed " << seed;
  }
}

TEST(MinP, DropsWhatIsLessLikelyThanTheFractionOfTheBest) {
  const auto x = logs({0.5, 0.3, 0.15, 0.05});

  EXPECT_THAT(min_p(x, 0.2f), ElementsAre(0, 1, 2));
  EXPECT_THAT(min_p(x, 0.5f), ElementsAre(0, 1));
  EXPECT_THAT(min_p(x, 1.0f), ElementsAre(0));
}

TEST(MinP, KeepsAtLeastTheAskedNumber) {
  const auto x = logs({0.02, 0.9, 0.04, 0.04});

  EXPECT_THAT(min_p(x, 0.5f, 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(min_p(x, 0.5f, 2), ElementsAre(1, 2));  // ties: the lower id
  EXPECT_THAT(min_p(x, 0.5f, 99), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(min_p(x, 0.01f, 2), ElementsAre(0, 1, 2, 3));
}

TEST(Xtc, DropsAllAboveTheLeastLikelyOneOverTheThreshold) {
  const auto x = logs({0.4, 0.3, 0.2, 0.06, 0.04});

  EXPECT_THAT(xtc(x, 0.1f), ElementsAre(2, 3, 4));
  EXPECT_THAT(xtc(x, 0.25f), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(xtc(x, 0.0f), ElementsAre(4));
}

TEST(Xtc, DropsNothingWithNoneOrOneAbove) {
  EXPECT_THAT(xtc(logs({0.4, 0.3, 0.3}), 0.45f), ElementsAre(0, 1, 2));
  EXPECT_THAT(xtc(logs({0.4, 0.3, 0.3}), 0.35f), ElementsAre(0, 1, 2));
}

TEST(Xtc, ComparesStrictly) {
  const std::vector<float> quarter(4, 0.0f);

  EXPECT_THAT(xtc(quarter, 0.25f), ElementsAre(0, 1, 2, 3));  // none above
  EXPECT_THAT(xtc(quarter, 0.2f), ElementsAre(0, 1, 2, 3));   // all are the least one
}

TEST(Xtc, SparesEosAndNewline) {
  EXPECT_THAT(xtc(logs({0.4, 0.3, 0.2, 0.1}), 0.15f, {1}), ElementsAre(1, 2, 3));
}

TEST(Xtc, UsesTheSoftmaxOfWhatSurvived) {
  auto x = logs({0.9, 0.04, 0.06});
  x[0] = kExcluded;

  EXPECT_THAT(xtc(x, 0.3f), ElementsAre(1));  // 0.4 and 0.6
}

TEST(TopK, KeepsTheBestAndOfEqualOnesTheLowerIds) {
  EXPECT_THAT(top_k({1, 5, 3, 5, 3, 3}, 2), ElementsAre(1, 3));
  EXPECT_THAT(top_k({1, 5, 3, 5, 3, 3}, 4), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(top_k({0.0f, -0.0f, 0.0f}, 2), ElementsAre(0, 1));
  EXPECT_THAT(top_k({kExcluded, 1, kExcluded}, 2), ElementsAre(1));
}

TEST(TopK, EqualsAFullSortOnRandomRows) {
  for (unsigned seed = 1; seed < 120; ++seed) {
    const auto x = random_row(seed * 31, 2.0f, seed, seed % 4 == 0);
    for (std::size_t k : {std::size_t{1}, std::size_t{40}, std::size_t{700}}) {
      if (k >= x.size()) continue;
      auto order = ascending_order(x);
      std::reverse(order.begin(), order.end());
      order.resize(k);
      std::erase_if(order, [&](TokenId t) { return x[t] == kExcluded; });
      std::sort(order.begin(), order.end());

      EXPECT_EQ(top_k(x, k), order) << "seed " << seed << " k " << k;
    }
  }
}

TEST(Rank, IsTheOrderAndReversible) {
  EXPECT_GT(rank_of(1.0f, 9), rank_of(0.5f, 1));
  EXPECT_GT(rank_of(-0.5f, 9), rank_of(-1.0f, 1));
  EXPECT_GT(rank_of(0.0f, 1), rank_of(-0.0f, 2));
  EXPECT_EQ(cutoff_of(rank_of(-3.25f, 77)).score, -3.25f);
  EXPECT_EQ(cutoff_of(rank_of(-3.25f, 77)).last, 77u);
}

TEST(Kernels, LogSoftmaxIsCloseToDoublePrecision) {
  const auto x = random_row(5003, 4, 1, false);
  const Normalizer norm = norm_of(x);
  double sum = 0;
  for (float v : x) sum += std::exp(static_cast<double>(v - norm.max));
  std::vector<float> lp(x.size()), p(x.size());
  log_softmax(x, norm.max, norm.log_sum, lp);
  probabilities(x, norm.max, norm.log_sum, p);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = static_cast<double>(x[i] - norm.max) - std::log(sum);

    ASSERT_NEAR(lp[i], exact, 4e-6);
    ASSERT_NEAR(p[i] / std::exp(static_cast<double>(lp[i])), 1.0, 2e-7);
  }
}

// Whatever copy of a pass the machine (or a sanitizer build) picks: the bits are those of this
// hash.
TEST(Kernels, GiveTheSameBitsOnEveryInstructionSet) {
  std::mt19937 rng(5);
  std::vector<float> x(3001), p(3001), lp(3001);
  for (float& v : x) v = static_cast<float>(rng() >> 8) * 0x1p-20f;  // [0, 16)
  const float max = find_peak(x).max;
  std::uint64_t hash = std::bit_cast<std::uint64_t>(sum_exp(x, max));
  const auto mix = [&](std::uint64_t v) { hash = (hash ^ v) * 0x100000001B3u; };
  probabilities(x, max, 7.25f, p);
  log_softmax(x, max, 7.25f, lp);
  for (std::size_t i = 0; i < x.size(); ++i) {
    mix(std::bit_cast<std::uint32_t>(p[i]));
    mix(std::bit_cast<std::uint32_t>(lp[i]));
  }

  EXPECT_EQ(hash, 13953761538905272761u);
}

TEST(Kernels, PeakFindsTheLowestIdAndEveryNonFiniteScore) {
  for (std::size_t n : {1u, 15u, 16u, 17u, 255u, 257u, 1000u}) {
    std::vector<float> x(n, -2.0f);
    EXPECT_EQ(find_peak(x).token, 0u);
    EXPECT_TRUE(find_peak(x).is_finite);
    x[n - 1] = 3.0f;
    x[n / 2] = 3.0f;
    EXPECT_EQ(find_peak(x).token, n / 2);
    for (float bad : {std::nanf(""), -std::numeric_limits<float>::infinity(),
                      std::numeric_limits<float>::infinity()}) {
      x[n - 1] = bad;
      EXPECT_FALSE(find_peak(x).is_finite) << n;
    }
  }
}

TEST(Kernels, MaskKeepsSetBitsAndDropsWhatItDoesNotCover) {
  const std::vector<float> x(100, 1.0f);
  std::vector<float> out(100);
  const std::vector<std::uint32_t> words{0x80000001u, 0, 0x00010000u};  // 32 … 95, then uncovered
  apply_mask(x, words, out);

  EXPECT_THAT(left(out), ElementsAre(0, 31, 80));
}

}  // namespace
}  // namespace kvasir::sampling::detail
