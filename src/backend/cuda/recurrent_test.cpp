// Recurrent layers: close to the oracle, a row's bits independent of chunks, other rows and
// recorded steps; a replay equals direct execution (KV-39).
#include <gtest/gtest.h>

#include "backend/cuda/testing/host_values.h"
#include "ops/recurrent_testing.h"

namespace kvasir::backend::cuda::testing {
namespace {

using namespace ops::testing::recurrent;

class CudaRecurrent : public ::testing::TestWithParam<Shape> {
 protected:
  void SetUp() override { KVASIR_NEEDS_CUDA(); }
  const Layer in_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Shapes, CudaRecurrent, ::testing::ValuesIn(kShapes), [](const auto& i) {
  return i.param.name;
});

// docs/numerics.md's bound of gated_delta, with |q| = key_dim^-1/2 and |S| + |v| below 16 here; the
// convolution and the gates add a few ulp of values of about 1.
TEST_P(CudaRecurrent, IsCloseToTheOracle) {
  const auto got = run_all(*make(), in_), expected = run_all(*make_oracle(), in_);
  const double n = 54, u = 0x1p-24, m = 16;

  EXPECT_LE(worst_difference(got.y, expected.y), n * (in_.shape.key_dim / 64.0 + 14) * u * m);
  EXPECT_EQ(got.states.conv, expected.states.conv);

  Layer wrong = in_;  // a planted fault: the gates of the heads in another order
  std::swap(wrong.a_log[0], wrong.a_log[1]);
  EXPECT_GT(worst_difference(run_all(*make(), wrong).y, expected.y), 1e-3);
}

TEST_P(CudaRecurrent, BitsDoNotDependOnChunksOrRecordedSteps) {
  const auto whole = run_all(*make(), in_);
  for (const std::uint32_t chunk : {0u, 1u, 7u, 33u}) {
    EXPECT_EQ(run_all(*make(Mode::eager), in_, chunk), whole) << "chunks of " << chunk;
    EXPECT_EQ(run_all(*make(Mode::recorded), in_, chunk), whole) << "chunks of " << chunk;
  }
}

TEST_P(CudaRecurrent, ReplayOfTheFirstTokensEqualsFeedingOnlyThem_KV39) {
  const Shape& s = GetParam();
  const std::uint32_t before = s.lengths[0] / 2, drafts = s.lengths[0] - before;
  std::vector<std::size_t> first(before), rest(drafts);
  std::iota(first.begin(), first.end(), 0u), std::iota(rest.begin(), rest.end(), before);
  const auto device = make();
  States saved(s, 1);
  auto row = row_view(s, nullptr, saved, 0);
  row.n_new = before;
  run_step(*device, in_, first, {&row, 1});
  for (const std::uint32_t keep : {0u, 1u, drafts / 2, drafts}) {
    States direct(s, 1), replayed(s, 1);
    row = row_view(s, &saved, direct, 0);
    row.n_new = keep;
    run_step(*device, in_, {rest.begin(), rest.begin() + keep}, {&row, 1});
    row = row_view(s, &saved, replayed, 0);
    row.n_new = keep;
    run_step(*device, in_, rest, {&row, 1}, /*with_output=*/false);  // the step's own inputs

    EXPECT_EQ(replayed, direct) << "keep " << keep;
    if (keep == 0) {
      EXPECT_EQ(replayed, saved);
    }
  }
}

TEST(CudaRecurrentRows, ANaNStaysInItsRow) {
  KVASIR_NEEDS_CUDA();
  Layer in(kShapes[5]);
  const auto device = make();
  const auto clean = run_all(*device, in);
  in.x[20 * std::size_t{in.shape.n_channels()}] = std::nanf("");  // the one token of the second row

  const auto got = run_all(*device, in);

  const std::size_t width = std::size_t{in.shape.n_value_heads} * in.shape.value_dim;
  EXPECT_EQ(std::memcmp(got.y.data(), clean.y.data(), 20 * width * sizeof(float)), 0);
  EXPECT_TRUE(std::isnan(got.y[20 * width]));
  EXPECT_EQ(std::memcmp(&got.y[21 * width], &clean.y[21 * width], 37 * width * sizeof(float)), 0);
}

}  // namespace
}  // namespace kvasir::backend::cuda::testing
