// Recurrent layers: equal to ref:mirror, close to a plain f64 model, and a row's bits independent
// of chunks, other rows, threads, instruction set. Replay equals direct execution (KV-39).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "backend/cpu/testing/weights.h"
#include "ops/recurrent_testing.h"

namespace kvasir::backend::cpu::testing {
namespace {

using namespace ops::testing::recurrent;

class Recurrent : public ::testing::TestWithParam<Shape> {
 protected:
  const Layer in_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Shapes, Recurrent, ::testing::ValuesIn(kShapes), [](const auto& i) {
  return i.param.name;
});

TEST_P(Recurrent, EqualsTheMirrorBitForBit) {
  EXPECT_EQ(run_all(*make(), in_), run_all(*make_mirror(), in_));
}

TEST_P(Recurrent, BitsDoNotDependOnChunksOnAnyDevice) {
  for (const auto& device : {make(1), make_mirror(), make_oracle()}) {
    const auto whole = run_all(*device, in_);
    for (const std::uint32_t chunk : {1u, 7u, 16u, 30u})
      EXPECT_EQ(run_all(*device, in_, chunk), whole) << device->name() << ", chunks of " << chunk;
  }
}

TEST_P(Recurrent, BitsDoNotDependOnThreads) {
  EXPECT_EQ(run_all(*make(1), in_), run_all(*make(3), in_));
}

TEST_P(Recurrent, IsTheSameOnEveryInstructionSet) {
  const auto expected = run_all(*make(2, Isa::portable), in_);
  for (const auto& [name, device] : every_device(2))
    EXPECT_EQ(run_all(*device, in_), expected) << name;
}

TEST_P(Recurrent, ReplayOfTheFirstTokensEqualsFeedingOnlyThem) {
  const Shape& s = GetParam();
  const std::uint32_t before = s.lengths[0] / 2, drafts = s.lengths[0] - before;
  std::vector<std::size_t> first(before), rest(drafts);
  std::iota(first.begin(), first.end(), 0u), std::iota(rest.begin(), rest.end(), before);
  for (const auto& device : {make(1), make_mirror(), make_oracle()}) {
    States saved(s, 1), staged(s, 1);
    auto row = row_view(s, nullptr, saved, 0);
    row.n_new = before;
    run_step(*device, in_, first, {&row, 1});
    row = row_view(s, &saved, staged, 0);
    row.n_new = drafts;
    run_step(*device, in_, rest, {&row, 1});
    for (const std::uint32_t keep : {0u, 1u, drafts / 2, drafts}) {
      States direct(s, 1), replayed(s, 1);
      row = row_view(s, &saved, direct, 0);
      row.n_new = keep;
      run_step(*device, in_, {rest.begin(), rest.begin() + keep}, {&row, 1});
      row = row_view(s, &saved, replayed, 0);
      row.n_new = keep;
      run_step(*device, in_, rest, {&row, 1}, /*with_output=*/false);  // the step's own inputs

      EXPECT_EQ(replayed, direct) << device->name() << ", keep " << keep;
      if (keep == drafts) {
        EXPECT_EQ(replayed, staged);
      }
      if (keep == 0) {
        EXPECT_EQ(replayed, saved);
      }
    }
  }
}

TEST(RecurrentRows, AloneAndTogetherHaveTheSameBits) {
  const Layer all(kShapes[5]);
  const auto cpu = make();
  const auto together = run_all(*cpu, all);
  std::size_t base = 0;
  for (const std::uint32_t length : all.shape.lengths) {
    Layer one(all);
    one.shape.lengths = {length}, one.n_tokens = length;
    const std::size_t channels = one.shape.n_channels(), heads = one.shape.n_value_heads,
                      width = heads * one.shape.value_dim;
    one.x.assign(&all.x[base * channels], &all.x[base * channels] + length * channels);
    one.a.assign(&all.a[base * heads], &all.a[base * heads] + length * heads);
    one.b.assign(&all.b[base * heads], &all.b[base * heads] + length * heads);

    EXPECT_EQ(std::memcmp(run_all(*cpu, one).y.data(), &together.y[base * width],
                          length * width * sizeof(float)),
              0);
    base += length;
  }
}

TEST(RecurrentRows, ANaNStaysInItsRow) {
  Layer in(kShapes[5]);
  const auto cpu = make();
  const auto clean = run_all(*cpu, in);
  in.x[20 * std::size_t{in.shape.n_channels()}] = std::nanf("");  // the one token of the second row

  const auto got = run_all(*cpu, in);

  const std::size_t width = std::size_t{in.shape.n_value_heads} * in.shape.value_dim;
  EXPECT_EQ(std::memcmp(got.y.data(), clean.y.data(), 20 * width * sizeof(float)), 0);
  EXPECT_TRUE(std::isnan(got.y[20 * width]));
  EXPECT_EQ(std::memcmp(&got.y[21 * width], &clean.y[21 * width], 37 * width * sizeof(float)), 0);
}

double f64(float x) { return static_cast<double>(x); }

// MOD-41 in f64 from the definition, one row; S is [value_dim][key_dim] of one value head.
struct NaiveDelta {
  std::vector<double> y;
  double largest = 0;  // of any |S row| + |v|: what the bound scales with
};
NaiveDelta naive_delta(const Shape& s, const ops::GatedDeltaArgs& a) {
  NaiveDelta out;
  out.y.resize(std::size_t{a.v.n_rows} * a.v.n_cols);
  for (std::size_t h = 0; h < s.n_value_heads; ++h) {
    const std::size_t key = h / (s.n_value_heads / s.n_key_heads) * s.key_dim;
    for (std::size_t d = 0; d < s.value_dim; ++d) {
      std::vector<double> state(s.key_dim, 0.0);
      for (std::size_t t = 0; t < a.v.n_rows; ++t) {
        const float *k = a.k.row(t) + key, *q = a.q.row(t) + key;
        const double v = f64(a.v.row(t)[h * s.value_dim + d]);
        double u = 0, y = 0, norm = 0;
        for (std::size_t i = 0; i < s.key_dim; ++i)
          u += (state[i] *= f64(a.decay.row(t)[h])) * f64(k[i]);
        const double delta = (v - u) * f64(a.beta.row(t)[h]);
        for (std::size_t i = 0; i < s.key_dim; ++i) {
          state[i] += delta * f64(k[i]);
          y += state[i] * f64(q[i]);
          norm += state[i] * state[i];
        }
        out.y[t * a.v.n_cols + h * s.value_dim + d] = y;
        out.largest = std::max(out.largest, std::sqrt(norm) + std::abs(v));
      }
    }
  }
  return out;
}

double worst_difference(const std::vector<float>& a, const std::vector<double>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(f64(a[i]) - b[i]);
    worst = std::isnan(d) ? std::numeric_limits<double>::infinity() : std::max(worst, d);
  }
  return worst;
}

// docs/numerics.md: a token adds (key_dim / 64 + 14) · u · (|S row| + |v|) to a row's error, and
// the rule itself never enlarges what is there; |q| turns it into an error of the output.
TEST(GatedDelta, IsTheRuleOfMod41WithinItsBound) {
  for (const Shape& s : kShapes) {
    const std::uint32_t n = 80, keys = s.n_key_heads * s.key_dim,
                        values = s.n_value_heads * s.value_dim;
    std::mt19937 rng(3);
    auto q = random_floats(std::size_t{n} * keys, rng), k = random_floats(q.size(), rng),
         v = random_floats(std::size_t{n} * values, rng);
    std::vector<float> decay(std::size_t{n} * s.n_value_heads), beta(decay.size());
    std::uniform_real_distribution<float> unit(0.0f, 1.0f);
    for (float& x : decay) x = 1.0f - 0.2f * unit(rng);
    for (float& x : beta) x = unit(rng);
    const auto oracle = make_oracle();
    const float scale = 1.0f / std::sqrt(static_cast<float>(s.key_dim));
    for (auto* x : {&q, &k})
      oracle->ops().l2_norm(*oracle, {.x = mat_view(x->data(), n, keys),
                                      .group = s.key_dim,
                                      .eps = 1e-6f,
                                      .scale = x == &q ? scale : 1.0f,
                                      .out = mat_view(x->data(), n, keys)});
    for (const auto& device : {make(), make_oracle()}) {
      States states(s, 1);
      auto row = row_view(s, nullptr, states, 0);
      row.n_new = n;
      auto view = States::view(s);
      view.rows = {&row, 1};
      std::vector<float> y(v.size());
      const ops::GatedDeltaArgs args{.q = mat_view(q.data(), n, keys),
                                     .k = mat_view(k.data(), n, keys),
                                     .v = mat_view(v.data(), n, values),
                                     .decay = mat_view(decay.data(), n, s.n_value_heads),
                                     .beta = mat_view(beta.data(), n, s.n_value_heads),
                                     .state = view,
                                     .out = mat_view(y.data(), n, values)};
      device->ops().gated_delta(*device, args);

      const NaiveDelta expected = naive_delta(s, args);
      const double bound =
          f64(scale) * (n + 1) * (s.key_dim / 64.0 + 14) * 0x1p-24 * expected.largest;
      EXPECT_LE(worst_difference(y, expected.y), bound) << device->name() << " " << s.name;
      auto wrong = args;  // the bound is tight enough to see a planted fault
      wrong.beta.data = decay.data();
      EXPECT_GT(worst_difference(y, naive_delta(s, wrong).y), 100 * bound);
    }
  }
}

TEST(CausalConv, AddsTapsFromTheOldestInputOn) {
  const std::vector<float> weight{1, 10, 100, 1000};  // kernel 4, one channel
  for (const auto& device : {make(), make_mirror(), make_oracle()}) {
    std::vector<float> x{1, 2, 3, 4, 5}, out(5), tail(3, -1.0f);
    RecurrentRowView row{.conv_to = reinterpret_cast<std::byte*>(tail.data()), .n_new = 5};
    const RecurrentLayerView state{.conv_kernel = 4, .n_channels = 1, .rows = {&row, 1}};
    device->ops().causal_conv(*device, {.x = mat_view(x.data(), 5, 1),
                                        .weight = weight.data(),
                                        .state = state,
                                        .out = mat_view(out.data(), 5, 1)});

    EXPECT_EQ(out, (std::vector<float>{1000, 2100, 3210, 4321, 5432}));
    EXPECT_EQ(tail, (std::vector<float>{3, 4, 5}));

    row.conv_from = row.conv_to, row.n_new = 1;  // fewer tokens than the tail has rows, in place
    device->ops().causal_conv(
        *device,
        {.x = mat_view(x.data(), 1, 1), .weight = weight.data(), .state = state, .out = {}});

    EXPECT_EQ(tail, (std::vector<float>{4, 5, 1}));
  }
}

TEST(DeltaGates, AreAFewUlpFromTheFormula) {
  const std::uint32_t n = 200, heads = 3;
  std::mt19937 rng(8);
  for (const float deviation : {0.1f, 3.0f, 40.0f}) {
    auto a = random_floats(std::size_t{n} * heads, rng, deviation), b = a;
    const auto a_log = random_floats(heads, rng), dt_bias = random_floats(heads, rng);
    std::vector<float> decay[2], beta[2];
    for (int i = 0; i < 2; ++i) {
      const auto device = i == 0 ? make() : make_mirror();
      decay[i].resize(a.size()), beta[i].resize(a.size());
      device->ops().delta_gates(*device, {.a = mat_view(a.data(), n, heads),
                                          .b = mat_view(b.data(), n, heads),
                                          .a_log = a_log.data(),
                                          .dt_bias = dt_bias.data(),
                                          .decay = mat_view(decay[i].data(), n, heads),
                                          .beta = mat_view(beta[i].data(), n, heads)});
    }
    EXPECT_TRUE(same_bits(decay[0], decay[1]) && same_bits(beta[0], beta[1]));
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double x = f64(a[i] + dt_bias[i % heads]), rate = std::exp(f64(a_log[i % heads])),
                   softplus = x > 30 ? x : std::log1p(std::exp(x));
      // exp turns an absolute error of its argument into a relative one: 4 u · argument.
      EXPECT_NEAR(f64(decay[0][i]), std::exp(-rate * softplus),
                  0x1p-24 * (4 + 8 * rate * softplus) * std::exp(-rate * softplus) + 1e-37);
      EXPECT_NEAR(f64(beta[0][i]), 1 / (1 + std::exp(-f64(b[i]))), 4 * 0x1p-24);
    }
  }
}

TEST(L2Norm, PutsEpsInTheSum) {
  for (const auto& device : {make(), make_mirror(), make_oracle()}) {
    std::vector<float> x{3, 4, 0, 0};
    device->ops().l2_norm(*device, {.x = mat_view(x.data(), 1, 4),
                                    .group = 2,
                                    .eps = 11.0f,
                                    .scale = 2.0f,
                                    .out = mat_view(x.data(), 1, 4)});

    EXPECT_EQ(x, (std::vector<float>{3 * (2.0f / 6), 4 * (2.0f / 6), 0, 0}));
  }
}

}  // namespace
}  // namespace kvasir::backend::cpu::testing
