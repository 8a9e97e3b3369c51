#include "sampling/detail/tone_stage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "base/philox.h"
#include "sampling/detail/draw.h"
#include "sampling/sampling_session.h"

namespace kvasir::sampling::detail {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_row(std::size_t n, float spread, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> x(n);
  for (float& v : x) v = normal(rng);
  return x;
}

std::vector<double> log_softmax_of(const std::vector<float>& x) {
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const float v : x) top = std::max(top, static_cast<double>(v));
  for (const float v : x) sum += std::exp(static_cast<double>(v) - top);
  std::vector<double> lp;
  for (const float v : x) lp.push_back(static_cast<double>(v) - top - std::log(sum));
  return lp;
}

double naive_base(const std::vector<double>& lp, HlgPivot pivot) {
  std::vector<double> sorted = lp;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  if (pivot == HlgPivot::top) return sorted[0];
  if (pivot == HlgPivot::entropy) {
    double sum = 0;
    for (const double v : lp) sum += v > -1e300 ? std::exp(v) * v : 0;
    return sum;
  }
  double mass = 0;
  for (const double v : sorted) {
    mass += std::exp(v);
    if (mass >= 0.5) return v;
  }
  return sorted.back();
}

// SAMP-13 as written, in f64; log1p, since a large β would lose 1 + u/β there too. u ≥ 0 in both,
// so the formula's bound of 1e-9 has no say.
double naive_hlg(double z, double w, double shoulder, double toe, double m) {
  if (z >= w && shoulder > 0) return m * w + m * shoulder * std::log1p((z - w) / shoulder);
  if (z < -w && toe > 0) return -m * w - m * toe * std::log1p((-z - w) / toe);
  return m * z;
}
std::vector<double> naive_row(const std::vector<float>& x, const HlgCurve& o, double m) {
  const auto lp = log_softmax_of(x);
  const double pivot = naive_base(lp, o.pivot) - static_cast<double>(o.pivot_offset);
  std::vector<double> y;
  for (const double v : lp) y.push_back(naive_hlg(v - pivot, o.width, o.shoulder, o.toe, m));
  return y;
}

TokenId naive_draw(const std::vector<double>& y, std::uint64_t seed, std::uint64_t position) {
  TokenId winner = 0;
  double best = -std::numeric_limits<double>::infinity();
  for (TokenId i = 0; i < y.size(); ++i) {
    const auto words =
        philox4x32({static_cast<std::uint32_t>(position), 0, i / 4, 0},
                   {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    const double s = y[i] + gumbel(words[i % 4]);
    if (s > best) {
      best = s;
      winner = i;
    }
  }
  return winner;
}

SamplingSession session(const SamplingOptions& o, std::size_t vocab, std::uint64_t seed = 1) {
  auto made = SamplingSession::make(o, {static_cast<std::uint32_t>(vocab), {}, {}, seed});
  EXPECT_TRUE(made) << (made ? "" : made.error().what);
  return std::move(*made);
}
SamplingOptions with_hlg(float temperature, HlgCurve hlg) {
  SamplingOptions o;
  o.temperature = temperature;
  o.hlg = hlg;
  return o;
}
SamplingOptions with_curve(std::vector<CurvePoint> points) {
  SamplingOptions o;
  o.curve = std::move(points);
  return o;
}

TEST(Bend, IsTheClosedFormWithinAFewUlp) {  // SAMP-13
  for (const Bend b :
       {Bend{4, 4, 6, -6}, Bend{0, 1, 1, -2}, Bend{0.5f, 1e4f, 1e5f, -3}, Bend{2, 0.01f, 0.02f, -8},
        Bend{1, 0, 6, -4}, Bend{1, 4, -1, -4}, Bend{3, 4, 6, 2}, Bend{0, 1e30f, 1e-30f, -6}}) {
    auto x = random_row(1001, 9, 3);
    x[5] = kExcluded;
    x[7] = -1e30f;
    const float max = find_peak(x).max;
    std::vector<float> y(x.size());
    bend(x, max, b, y);

    for (std::size_t i = 0; i < x.size(); ++i) {
      if (x[i] == kExcluded) continue;
      const double z =
          static_cast<double>(x[i]) - static_cast<double>(max) - static_cast<double>(b.pivot);
      const double expected = naive_hlg(z, b.width, b.shoulder, b.toe, 1);
      const double scale = std::max({std::abs(expected), std::min(std::abs(z), 50.0), 1.0});
      EXPECT_NEAR(y[i], expected, 4 * 0x1p-23 * scale) << z << ' ' << b.width << ' ' << b.toe;
    }
    EXPECT_EQ(y[5], kExcluded);
    bend(x, max, b, x);  // in place
    EXPECT_EQ(x, y);
  }
}

TEST(Bend, TheKneesBelongToTheSpecsSides) {  // z = w is shoulder, z = −w is not yet toe
  const std::vector<float> x{0, -8};
  std::vector<float> y(2);
  bend(x, 0, {4, 4, 6, -4}, y);

  EXPECT_EQ(y[0], 4.0f);
  EXPECT_EQ(y[1], -4.0f);
}

TEST(Bend, StaysFiniteAtTheLimits) {
  for (const float w : {0.0f, 1e37f}) {
    for (const float beta : {1e-45f, 1.0f, 1e37f}) {
      for (const float pivot : {-1e37f, 0.0f, 1e37f}) {
        const std::vector<float> x{1e30f, -1e30f, 0};
        std::vector<float> y(3);
        bend(x, 1e30f, {w, beta, beta, pivot}, y);
        for (const float v : y) EXPECT_TRUE(std::isfinite(v)) << w << ' ' << beta << ' ' << pivot;
        EXPECT_GE(y[0], y[2]);
        EXPECT_GE(y[2], y[1]);
      }
    }
  }
}

TEST(HlgBase, IsTopEntropyOrMedian) {  // SAMP-13
  FilterScratch scratch;
  for (const float spread : {0.01f, 1.0f, 4.0f, 15.0f}) {
    for (const std::size_t n : {1u, 2u, 37u, 5000u}) {
      auto x = random_row(n, spread, static_cast<unsigned>(n));
      const auto check = [&] {
        const auto lp = log_softmax_of(x);
        const double top = naive_base(lp, HlgPivot::top);
        for (const HlgPivot p : {HlgPivot::top, HlgPivot::entropy, HlgPivot::median}) {
          EXPECT_NEAR(hlg_base(x, find_peak(x), p, scratch), naive_base(lp, p) - top, 4e-6)
              << n << ' ' << spread << ' ' << static_cast<int>(p);
        }
      };
      check();
      for (std::size_t i = 0; i + 1 < n; i += 2) x[i] = kExcluded;
      check();
    }
  }
}

TEST(HlgBase, TheMedianIsReachedByTheMassItself) {
  FilterScratch scratch;
  const std::vector<float> x{std::log(0.4f), std::log(0.3f), std::log(0.2f), std::log(0.1f)};
  EXPECT_NEAR(hlg_base(x, find_peak(x), HlgPivot::median, scratch), std::log(0.75), 1e-6);
  const std::vector<float> sure{0, -20, -20};
  EXPECT_EQ(hlg_base(sure, find_peak(sure), HlgPivot::median, scratch), 0.0f);
}

TEST(ToneStage, HlgDrawsFromTheBentDistribution) {  // SAMP-13
  const auto x = random_row(700, 4, 5);
  for (const HlgPivot pivot : {HlgPivot::top, HlgPivot::entropy, HlgPivot::median}) {
    for (const float gain : {0.0f, 1.7f}) {
      const HlgCurve hlg{1.5f, 2.0f, 3.0f, 2.5f, pivot, gain};
      auto s = session(with_hlg(0.8f, hlg), x.size(), 77);
      const double m = gain > 0 ? static_cast<double>(gain) : 1.0 / static_cast<double>(0.8f);
      const auto y = naive_row(x, hlg, m);
      for (std::uint64_t i = 0; i < 200; ++i)
        EXPECT_EQ(s.sample(x, i)->token, naive_draw(y, 77, i)) << static_cast<int>(pivot);
    }
  }
}

TEST(ToneStage, CurveDrawsFromTheCurvedProbabilitiesAtTemperatureOne) {  // SAMP-14
  const auto x = random_row(700, 3, 6);
  const std::vector<CurvePoint> points{{50, 20}, {0.01, 0.001}, {2, 5}};
  auto s = session(with_curve(points), x.size(), 78);  // temperature 0.7 has no say
  const auto curve = MonotoneCurve::make(points);
  std::vector<double> y;
  for (const double lp : log_softmax_of(x)) y.push_back((*curve)(lp));

  for (std::uint64_t i = 0; i < 300; ++i) EXPECT_EQ(s.sample(x, i)->token, naive_draw(y, 78, i));
}

TEST(ToneStage, IdentitiesAreTheTemperaturePathToTheBit) {  // SAMP-13, 14
  const auto x = random_row(2000, 2, 7);
  std::vector<std::uint32_t> words(63, 0x55555555u);
  const TokenMask mask{words};
  SamplingOptions warm, one;
  warm.temperature = 1.3f;
  one.temperature = 1.0f;
  const struct {
    SamplingOptions same, as;
  } pairs[] = {
      {with_hlg(1.3f, {kInfinity, 4, 6, 6, HlgPivot::top, 0}), warm},
      {with_hlg(1.3f, {std::numeric_limits<float>::max(), 4, 6, 6, HlgPivot::median, 0}), warm},
      {with_hlg(1.3f, {4, 0, -1, 6, HlgPivot::entropy, 0}), warm},
      {with_hlg(0.5f, {kInfinity, 4, 6, 6, HlgPivot::top, 1}), one},
      {with_curve({{0, 0}, {3, 3}, {100, 100}}), one},
  };
  for (const auto& p : pairs) {
    auto a = session(p.same, x.size(), 9), b = session(p.as, x.size(), 9);
    for (std::uint64_t i = 0; i < 200; ++i) {
      EXPECT_EQ(a.sample(x, i)->token, b.sample(x, i)->token);
      EXPECT_EQ(a.sample(x, i, &mask)->token, b.sample(x, i, &mask)->token);
    }
  }
}

TEST(ToneStage, FiltersAreNotApplied) {
  const auto x = random_row(500, 1, 8);
  for (SamplingOptions o : {with_hlg(1, {}), with_curve({{0.1, 0.2}, {50, 30}})}) {
    SamplingOptions filtered = o;
    filtered.top_p = 0.01f;
    filtered.min_p = 1;
    filtered.xtc_probability = 1;
    filtered.xtc_threshold = 0;
    filtered.top_k = 1;
    auto a = session(o, x.size()), b = session(filtered, x.size());
    for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(a.sample(x, i)->token, b.sample(x, i)->token);
  }
}

TEST(ToneStage, TemperatureZeroStaysGreedy) {
  const auto x = random_row(500, 1, 9);
  for (SamplingOptions o :
       {with_hlg(0, {4, 4, 6, 6, HlgPivot::top, 0.01f}), with_curve({{0.1, 5}, {50, 5}})}) {
    o.temperature = 0;
    auto s = session(o, x.size());
    EXPECT_TRUE(s.is_plain_greedy());
    for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(s.sample(x, i)->token, find_peak(x).token);
  }
}

TEST(ToneStage, MaskedTokensAreNeverDrawn) {
  const auto x = random_row(96, 2, 10);
  const std::vector<std::uint32_t> words{1u << 9, 0, 1u << 3};
  const TokenMask mask{words};
  for (const SamplingOptions& o :
       {with_hlg(50, {0, 0.01f, 0.01f, 0, HlgPivot::median, 0}),
        with_hlg(50, {4, 4, 6, 6, HlgPivot::entropy, 0}), with_curve({{0, 5}, {100, 5}})}) {
    auto s = session(o, x.size());
    int seen[2] = {};
    for (std::uint64_t i = 0; i < 200; ++i) {
      const TokenId t = s.sample(x, i, &mask)->token;
      ASSERT_TRUE(t == 9 || t == 67) << t;
      ++seen[t == 67];
    }
    EXPECT_GT(seen[0], 0);
    EXPECT_GT(seen[1], 0);
  }
}

TEST(ToneStage, LogprobsAreThoseBeforeTheCurve) {  // SAMP-30
  const auto x = random_row(400, 2, 11);
  SamplingOptions plain;
  plain.temperature = 0;
  plain.logprobs = true;
  plain.top_logprobs = 5;
  const auto reference = session(plain, x.size()).sample(x, 0);
  for (SamplingOptions o : {with_hlg(2, {}), with_curve({{1, 3}, {50, 20}})}) {
    o.logprobs = true;
    o.top_logprobs = 5;
    const auto r = session(o, x.size()).sample(x, 0);
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(r->logprobs->top[i].token, reference->logprobs->top[i].token);
      EXPECT_EQ(r->logprobs->top[i].logprob, reference->logprobs->top[i].logprob);
    }
    o.logprobs = false;
    EXPECT_EQ(session(o, x.size()).sample(x, 0)->token, r->token);
  }
}

TEST(ToneStage, ExtremeOptionsStillDraw) {
  const auto x = random_row(300, 3, 12);
  for (const float t : {1e-45f, 1e-30f, 3e38f}) {
    for (const HlgCurve& hlg : {HlgCurve{}, HlgCurve{0, 1e-45f, 1e-45f, -3e38f, HlgPivot::top, 0},
                                HlgCurve{0, kInfinity, kInfinity, 3e38f, HlgPivot::median, 0}}) {
      EXPECT_LT(session(with_hlg(t, hlg), x.size()).sample(x, 0)->token, 300u);
    }
  }
  EXPECT_EQ(session(with_hlg(1e-45f, {}), x.size()).sample(x, 0)->token, find_peak(x).token);
}

TEST(ToneStage, RejectsWhatNoRequestMaySay) {
  const float nan = std::nanf("");
  for (const HlgCurve& hlg :
       {HlgCurve{nan, 4, 6, 6, HlgPivot::top, 0}, HlgCurve{-1, 4, 6, 6, HlgPivot::top, 0},
        HlgCurve{4, nan, 6, 6, HlgPivot::top, 0}, HlgCurve{4, 4, nan, 6, HlgPivot::top, 0},
        HlgCurve{4, 4, 6, kInfinity, HlgPivot::top, 0}, HlgCurve{4, 4, 6, 6, HlgPivot::top, -1},
        HlgCurve{4, 4, 6, 6, HlgPivot::top, kInfinity}}) {
    EXPECT_FALSE(SamplingSession::make(with_hlg(1, hlg), {10, {}, {}, 1}));
  }
  EXPECT_FALSE(SamplingSession::make(with_curve({{1, 1}}), {10, {}, {}, 1}));
}

TEST(ToneStage, ABatchOfMixedRowsEqualsEachAlone) {  // SAMP-20, C08
  std::vector<SamplingOptions> options;
  for (unsigned i = 0; i < 32; ++i) {
    SamplingOptions o;
    o.temperature = 0.5f + 0.1f * static_cast<float>(i % 7);
    if (i % 4 == 1) o.hlg = HlgCurve{0.5f * static_cast<float>(i % 5), 2, 3, 4, HlgPivot{}, 0};
    if (i % 4 == 2) o.curve = {{0.1, 0.01 * (i + 1)}, {50, 40}};
    if (i % 8 == 3) o.top_p = 0.8f;
    if (i % 4 == 1) o.hlg->pivot = static_cast<HlgPivot>(i / 4 % 3);
    options.push_back(o);
  }
  const auto x = random_row(900, 2, 13);
  std::vector<SamplingSession> batch;
  for (unsigned i = 0; i < 32; ++i) batch.push_back(session(options[i], x.size(), i));
  for (std::uint64_t step = 0; step < 10; ++step) {
    for (unsigned i = 0; i < 32; ++i) {
      EXPECT_EQ(batch[i].sample(x, step)->token,
                session(options[i], x.size(), i).sample(x, step)->token);
    }
  }
}

}  // namespace
}  // namespace kvasir::sampling::detail
