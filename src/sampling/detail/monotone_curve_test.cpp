#include "sampling/detail/monotone_curve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace kvasir::sampling::detail {
namespace {

using Points = std::vector<CurvePoint>;

MonotoneCurve curve_of(const Points& points) {
  auto made = MonotoneCurve::make(points);
  EXPECT_TRUE(made) << (made ? "" : made.error().what);
  return std::move(*made);
}
std::string error_of(const Points& points) {
  const auto made = MonotoneCurve::make(points);
  return made ? "accepted" : made.error().what;
}
double ln(double percent) { return std::log(percent / 100); }

// SAMP-14 as written: Hermite basis functions on sorted points.
double naive(const Points& sorted, double x) {
  const std::size_t n = sorted.size();
  std::vector<double> X, Y, d, m(n);
  for (const CurvePoint& p : sorted) {
    X.push_back(std::log(std::max(p.x_pct, 1e-9) / 100));
    Y.push_back(std::log(std::max(p.y_pct, 1e-9) / 100));
  }
  for (std::size_t i = 0; i + 1 < n; ++i) d.push_back((Y[i + 1] - Y[i]) / (X[i + 1] - X[i]));
  m[0] = d.front();
  m[n - 1] = d.back();
  for (std::size_t i = 1; i + 1 < n; ++i) {
    const double h1 = X[i] - X[i - 1], h2 = X[i + 1] - X[i];
    const double w1 = 2 * h2 + h1, w2 = h2 + 2 * h1;
    m[i] = d[i - 1] * d[i] <= 0 ? 0 : (w1 + w2) / (w1 / d[i - 1] + w2 / d[i]);
  }
  if (x < X[0]) return Y[0] + (x - X[0]) * std::max(m[0], 1.0);
  if (x >= X[n - 1]) return Y[n - 1] + (x - X[n - 1]) * m[n - 1];
  std::size_t k = 0;
  while (x >= X[k + 1]) ++k;
  const double h = X[k + 1] - X[k], t = (x - X[k]) / h, t2 = t * t, t3 = t2 * t;
  return (2 * t3 - 3 * t2 + 1) * Y[k] + (t3 - 2 * t2 + t) * h * m[k] +
         (3 * t2 - 2 * t3) * Y[k + 1] + (t3 - t2) * h * m[k + 1];
}

TEST(MonotoneCurve, IsTheHermiteCubicOfItsPoints) {  // SAMP-14
  const Points shapes[] = {
      {{1, 2}, {50, 40}},
      {{0.01, 0.001}, {1, 2}, {10, 9}, {90, 60}},
      {{0, 0}, {0.1, 5}, {1, 5}, {2, 5}, {60, 70}, {100, 70}},
      {{1, 1}, {1.0001, 90}, {99, 91}},
  };
  for (const Points& points : shapes) {
    const MonotoneCurve curve = curve_of(points);
    for (double lp = -40; lp <= 1; lp += 0.0137) {
      const double expected = naive(points, lp);

      EXPECT_NEAR(curve(lp), expected, 1e-9 * std::max(1.0, std::abs(expected))) << lp;
    }
  }
}

TEST(MonotoneCurve, PassesThroughItsPointsInAnyOrder) {
  const MonotoneCurve curve = curve_of({{90, 60}, {0.5, 0.25}, {10, 20}});

  EXPECT_NEAR(curve(ln(0.5)), ln(0.25), 1e-12);
  EXPECT_NEAR(curve(ln(10)), ln(20), 1e-12);
  EXPECT_NEAR(curve(ln(90)), ln(60), 1e-12);
}

TEST(MonotoneCurve, NeverFalls) {
  const MonotoneCurve curve =
      curve_of({{0, 0}, {0.1, 5}, {0.2, 5}, {5, 5.001}, {60, 90}, {61, 99}});
  double last = curve(-60);
  for (double lp = -60; lp <= 1; lp += 0.003) {
    EXPECT_GE(curve(lp), last - 1e-12) << lp;
    last = curve(lp);
  }
}

TEST(MonotoneCurve, GoesOnInLinesWhoseLowerSlopeIsAtLeastOne) {
  const MonotoneCurve flat = curve_of({{1, 10}, {50, 20}});
  const double gentle = (ln(20) - ln(10)) / (ln(50) - ln(1));
  EXPECT_NEAR(flat(ln(1) - 2), ln(10) - 2, 1e-12);
  EXPECT_NEAR(flat(ln(50) + 0.5), ln(20) + 0.5 * gentle, 1e-12);

  const MonotoneCurve steep = curve_of({{1, 0.01}, {50, 20}});
  const double slope = (ln(20) - ln(0.01)) / (ln(50) - ln(1));
  EXPECT_GT(slope, 1);
  EXPECT_NEAR(steep(ln(1) - 2), ln(0.01) - 2 * slope, 1e-12);
}

TEST(MonotoneCurve, RefusesWhatFallsOrRepeats) {
  EXPECT_EQ(error_of({{1, 2}, {2, 1}}), "curve must be monotone");
  EXPECT_EQ(error_of({{2, 1}, {1, 2}}), "curve must be monotone");
  EXPECT_EQ(error_of({{1, 1}, {1, 2}}), "curve must be monotone");
  EXPECT_EQ(error_of({{0, 1}, {1e-10, 2}}), "curve must be monotone");  // both 10⁻⁹ %
  EXPECT_EQ(error_of({{1, 5}, {10, 5}}), "accepted");
  EXPECT_EQ(error_of({{1, 5}, {10, 5 * (1 - 1e-13)}}), "accepted");
  EXPECT_EQ(error_of({{1, 5}, {10, 5 * (1 - 1e-11)}}), "curve must be monotone");
}

TEST(MonotoneCurve, TakesTwoToSixtyFourFinitePoints) {
  EXPECT_EQ(error_of({}), "curve must have at least 2 points");
  EXPECT_EQ(error_of({{1, 1}}), "curve must have at least 2 points");
  Points many;
  for (int i = 1; i <= 64; ++i) many.push_back({i * 1.0, i * 1.0});
  EXPECT_EQ(error_of(many), "accepted");
  many.push_back({65, 65});
  EXPECT_EQ(error_of(many), "curve must have at most 64 points");
  EXPECT_EQ(error_of({{1, 1}, {2, std::numeric_limits<double>::infinity()}}),
            "curve points must be finite");
  EXPECT_EQ(error_of({{std::nan(""), 1}, {2, 2}}), "curve points must be finite");
}

TEST(MonotoneCurve, IdentityPointsChangeNothing) {
  EXPECT_TRUE(curve_of({{0, 0}, {1, 1}, {30, 30}, {100, 100}}).is_identity());
  EXPECT_FALSE(curve_of({{1, 1}, {30, 30}, {100, 99}}).is_identity());
  const MonotoneCurve near = curve_of({{1, 1}, {30, 30}});
  for (double lp = -30; lp <= 0; lp += 0.1) EXPECT_NEAR(near(lp), lp, 1e-12);
}

TEST(MonotoneCurve, AppliesToRowsAndKeepsExcludedTokens) {
  const Points points{{0.1, 1}, {50, 40}};
  const MonotoneCurve curve = curve_of(points);
  const std::vector<float> x{2, -1, kExcluded, -1e30f, 0};
  const Normalizer norm = normalizer_of(x, 2);
  std::vector<float> y(x.size());
  curve.apply(x, norm, y);

  for (const std::size_t i : {0u, 1u, 4u}) {
    const double lp = static_cast<double>(x[i]) - 2.0 - static_cast<double>(norm.log_sum);
    const double expected = naive(points, lp);
    EXPECT_NEAR(y[i], expected, 4e-7 * std::abs(expected));
  }
  EXPECT_EQ(y[2], kExcluded);
  EXPECT_TRUE(std::isfinite(y[3]));
}

TEST(MonotoneCurve, StaysFiniteAtTheSteepest) {
  const MonotoneCurve curve = curve_of({{50, 1e-9}, {std::nextafter(50.0, 51.0), 100}});
  const std::vector<float> x{0, -1e30f};
  std::vector<float> y(2);
  curve.apply(x, {0.0f, 0.0f}, y);

  EXPECT_TRUE(std::isfinite(y[0]));
  EXPECT_TRUE(std::isfinite(y[1]));
}

}  // namespace
}  // namespace kvasir::sampling::detail
