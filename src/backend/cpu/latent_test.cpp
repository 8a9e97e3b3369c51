// Latent attention and the sparse index: equal to ref:mirror, close to a plain f64 model, and a
// query's bits independent of blocks, chunks, other rows, threads, instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "backend/cpu/testing/weights.h"
#include "ops/latent_testing.h"

namespace kvasir::backend::cpu::testing {
namespace {

using namespace ops::testing::latent;

class Latent : public ::testing::TestWithParam<Case> {
 protected:
  const Inputs in_ = draw(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Shapes, Latent, ::testing::ValuesIn(kCases), [](const auto& i) {
  return i.param.name;
});

TEST_P(Latent, EqualsTheMirrorBitForBit) {
  EXPECT_EQ(run(*make(), GetParam(), in_), run(*make_mirror(), GetParam(), in_));
}

TEST_P(Latent, BitsDoNotDependOnBlocksOrChunks) {
  const auto cpu = make(1);
  const auto expected = run(*cpu, GetParam(), in_);
  for (const std::uint32_t block : {8u, 64u, 256u}) {
    for (const std::uint32_t chunk : {0u, 1u, 7u, 64u}) {
      Case c = GetParam();
      c.block_tokens = block, c.chunk = chunk;
      EXPECT_EQ(run(*cpu, c, in_), expected) << "blocks of " << block << ", chunks of " << chunk;
    }
  }
}

TEST_P(Latent, BitsDoNotDependOnThreads) {
  EXPECT_EQ(run(*make(1), GetParam(), in_), run(*make(3), GetParam(), in_));
}

TEST(LatentThreads, ShareTheHeadsOfFewQueries) {
  const Case c{.name = "decode", .n_heads = 10, .lengths = {20}, .top_k = 7, .chunk = 1};
  const Inputs in = draw(c);

  EXPECT_EQ(run(*make(1), c, in), run(*make(3), c, in));
}

TEST_P(Latent, IsTheSameOnEveryInstructionSet) {
  const auto expected = run(*make(2, Isa::portable), GetParam(), in_);
  for (const auto& [name, device] : every_device(2))
    EXPECT_EQ(run(*device, GetParam(), in_), expected) << name;
}

double f64(float x) { return static_cast<double>(x); }

// MOD-35/36 in f64 from the definition: selection by the model's own score, one softmax.
struct Naive {
  std::vector<double> out;
  std::vector<std::uint32_t> selected;
};
float kept(const Case& c, float x) { return c.type == DType::f32 ? x : round_to_bf16(x); }

std::vector<std::uint32_t> naive_selection(const Case& c,
                                           const Inputs& in,
                                           std::size_t base,
                                           std::size_t t) {
  std::vector<std::pair<double, std::uint32_t>> order;  // by −score, then position
  for (std::size_t p = base; p <= t; ++p) {
    double score = 0;
    for (std::size_t h = 0; h < c.index_heads; ++h) {
      double s = 0;
      for (std::size_t d = 0; d < c.index_dim; ++d)
        s += f64(in.index_q[(t * c.index_heads + h) * c.index_dim + d]) *
             f64(kept(c, in.index_k[p * c.index_dim + d]));
      score += f64(in.weights[t * c.index_heads + h]) *
               std::max(s / std::sqrt(static_cast<double>(c.index_dim)), 0.0) /
               std::sqrt(static_cast<double>(c.index_heads));
    }
    order.emplace_back(-score, static_cast<std::uint32_t>(p - base));
  }
  std::sort(order.begin(), order.end());
  std::vector<std::uint32_t> chosen;
  for (std::size_t i = 0; i < std::min<std::size_t>(order.size(), c.top_k); ++i)
    chosen.push_back(order[i].second);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

void naive_attend(const Case& c,
                  const Inputs& in,
                  std::size_t base,
                  std::size_t t,
                  const std::vector<std::uint32_t>& keys,
                  double* out) {
  for (std::size_t h = 0; h < c.n_heads; ++h) {
    const float *q = &in.q[(t * c.n_heads + h) * c.rank],
                *q_rope = &in.q_rope[(t * c.n_heads + h) * c.rope_step()];
    double sum = 0;
    for (const std::size_t p : keys) {
      double s = 0;
      for (std::size_t d = 0; d < c.rank; ++d)
        s += f64(q[d]) * f64(kept(c, in.latent[(base + p) * c.rank + d]));
      for (std::size_t d = 0; d < c.rope_dim; ++d)
        s += f64(q_rope[d]) * f64(kept(c, in.rope[(base + p) * c.rope_dim + d]));
      const double weight = std::exp(s * 0.125);
      sum += weight;
      for (std::size_t d = 0; d < c.rank; ++d)
        out[h * c.rank + d] += weight * f64(kept(c, in.latent[(base + p) * c.rank + d]));
    }
    for (std::size_t d = 0; d < c.rank; ++d) out[h * c.rank + d] /= sum;
  }
}

Naive naive(const Case& c, const Inputs& in) {
  Naive result;
  result.out.assign(c.n_tokens() * c.n_heads * c.rank, 0.0);
  result.selected.assign(c.n_tokens() * c.top_k, ~0u);
  std::size_t base = 0;
  for (const std::uint32_t length : c.lengths) {
    for (std::size_t t = base; t < base + length; ++t) {
      std::vector<std::uint32_t> keys(t - base + 1);
      std::iota(keys.begin(), keys.end(), 0u);
      if (c.top_k > 0) keys = naive_selection(c, in, base, t);
      if (c.top_k > 0) std::copy(keys.begin(), keys.end(), &result.selected[t * c.top_k]);
      naive_attend(c, in, base, t, keys, &result.out[t * c.n_heads * c.rank]);
    }
    base += length;
  }
  return result;
}

double worst_difference(const std::vector<float>& a, const std::vector<double>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(f64(a[i]) - b[i]);
    worst = std::isnan(d) ? std::numeric_limits<double>::infinity() : std::max(worst, d);
  }
  return worst;
}

TEST_P(Latent, OracleIsTheDefinition) {
  const auto got = run(*make_oracle(), GetParam(), in_);
  const auto expected = naive(GetParam(), in_);

  EXPECT_EQ(got.selected, expected.selected);
  EXPECT_LE(worst_difference(got.out, expected.out), 0x1p-21);  // |value| < 8, rounded once
  Inputs wrong = in_;  // a planted fault must show: keys roped one position late
  std::rotate(wrong.rope.rbegin(), wrong.rope.rbegin() + GetParam().rope_dim, wrong.rope.rend());
  EXPECT_GT(worst_difference(got.out, naive(GetParam(), wrong).out), 0x1p-10);
}

// As attention's, whose kernel this is: f32 within 4e-6 on values of about 1; bf16 operands move a
// score by 2^-8 |q| |k| scale at most, |q| |k| about dim, and with it a probability.
TEST_P(Latent, IsCloseToTheDefinition) {
  const Case& c = GetParam();
  const auto got = run(*make(), c, in_);
  const auto expected = naive(c, in_);

  if (c.type == DType::f32) {
    EXPECT_EQ(got.selected, expected.selected);
    EXPECT_LE(worst_difference(got.out, expected.out), 4e-6);
  } else if (c.top_k == 0) {  // a rounded q may choose other keys of nearly the same score
    EXPECT_LE(worst_difference(got.out, expected.out), 4e-2 * std::sqrt(c.dim() / 40.0));
  }
}

TEST(LatentSelection, OfEverythingHasTheBitsOfNone) {
  const Case dense{"dense", 4, 32, 8, DType::bf16, {150}};
  Case sparse = dense;
  sparse.top_k = 150;
  const Inputs in = draw(dense);
  const auto cpu = make();

  EXPECT_TRUE(same_bits(run(*cpu, sparse, in).out, run(*cpu, dense, in).out));
}

// One row whose index keys are given, one head of weight 1 and q = 1: the score is relu(key).
std::vector<std::uint32_t> select_by_keys(ops::Device& device,
                                          std::vector<float> keys,
                                          std::uint32_t top_k) {
  const auto n = static_cast<std::uint32_t>(keys.size());
  const std::uint32_t dim = 2, block_tokens = 8;
  std::vector<float> wide(keys.size() * dim, 0.0f), q{1.0f, 0.0f}, weight{1.0f};
  for (std::size_t i = 0; i < keys.size(); ++i) wide[i * dim] = keys[i];
  const std::vector<BlockId> blocks{BlockId{0}, BlockId{1}};
  const KvRowView row{.blocks = blocks.data(), .length = n - 1, .n_new = 1};
  wide.resize(2 * block_tokens * dim);
  LatentLayerView view;
  view.index = reinterpret_cast<std::byte*>(wide.data()), view.type = DType::f32;
  view.index_dim = dim, view.block_tokens = block_tokens, view.rows = {&row, 1};
  std::vector<std::uint32_t> selected(top_k, ~0u);
  device.ops().index_select(device, {.q = mat_view(q.data(), 1, dim),
                                     .weights = mat_view(weight.data(), 1, 1),
                                     .kv = view,
                                     .n_heads = 1,
                                     .top_k = top_k,
                                     .selected = selected});
  return selected;
}

TEST(IndexSelect, TiesGoToTheLowerPositionAndNaNsComeLast) {
  using Positions = std::vector<std::uint32_t>;
  const float nan = std::nanf("");
  for (const auto& device : {make(), make(1, Isa::portable), make_mirror(), make_oracle()}) {
    EXPECT_EQ(select_by_keys(*device, {2, 5, 2, 7, 2, 2}, 3), (Positions{0, 1, 3}));
    EXPECT_EQ(select_by_keys(*device, {0, -1, -9, 1, -3}, 3), (Positions{0, 1, 3}));  // relu ties
    EXPECT_EQ(select_by_keys(*device, {nan, 1, -1, nan, 3}, 3), (Positions{1, 2, 4}));
    EXPECT_EQ(select_by_keys(*device, {nan, 1, nan, nan, 3}, 3), (Positions{0, 1, 4}));
    EXPECT_EQ(select_by_keys(*device, {1, 2, 3}, 5), (Positions{0, 1, 2, ~0u, ~0u}));
  }
}

TEST(HeadLinear, HasTheBitsOfLinearOnEachHeadsColumns) {
  std::mt19937 rng(2);
  const std::uint32_t n = 5, n_in = 16, n_out = 24, x_step = 20, out_step = 25;
  const auto cpu = make();
  std::vector<std::unique_ptr<ops::PackedMatrix>> packed;
  std::vector<const ops::PackedMatrix*> weights;
  for (int h = 0; h < 3; ++h) {
    packed.push_back(*cpu->pack(StoredWeight("bf16", n_out, n_in, rng).view(), {}));
    weights.push_back(packed.back().get());
  }
  auto x = random_floats(std::size_t{n} * 3 * x_step, rng);
  std::vector<float> out(std::size_t{n} * 3 * out_step, -1.0f), one(std::size_t{n} * n_out);
  cpu->ops().head_linear(*cpu, {.x = mat_view(x.data(), n, 3 * x_step),
                                .weights = weights,
                                .x_step = x_step,
                                .out_step = out_step,
                                .out = mat_view(out.data(), n, 3 * out_step)});
  for (std::uint32_t h = 0; h < 3; ++h) {
    cpu->ops().linear(*cpu, {.x = mat_view(x.data(), n, 3 * x_step).columns(h * x_step, n_in),
                             .weight = weights[h],
                             .out = mat_view(one.data(), n, n_out)});
    for (std::uint32_t t = 0; t < n; ++t) {
      const float* got = &out[t * 3 * out_step + h * out_step];
      EXPECT_EQ(std::memcmp(got, &one[t * n_out], n_out * sizeof(float)), 0);
      EXPECT_EQ(got[n_out], -1.0f);  // between the heads nothing is written
    }
  }
}

TEST(LatentRows, DoNotTouchEachOther) {
  const Case c{"two", 4, 32, 8, DType::bf16, {70, 90}};
  Inputs in = draw(c);
  const auto cpu = make();
  const auto clean = run(*cpu, c, in);
  in.latent[(70 + 5) * std::size_t{c.rank}] = std::nanf("");  // a key of the second row

  const auto got = run(*cpu, c, in);

  const std::size_t width = std::size_t{c.n_heads} * c.rank;
  EXPECT_EQ(std::memcmp(got.out.data(), clean.out.data(), (70 + 5) * width * sizeof(float)), 0);
  EXPECT_TRUE(std::isnan(got.out[(70 + 5) * width]));
}

}  // namespace
}  // namespace kvasir::backend::cpu::testing
