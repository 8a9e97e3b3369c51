// Latent attention and the sparse index: close to the oracle, ties to the lower position, a query's
// bits independent of blocks, chunks, other rows and recorded steps.
#include <gtest/gtest.h>

#include "backend/cuda/testing/host_values.h"
#include "ops/latent_testing.h"

namespace kvasir::backend::cuda::testing {
namespace {

using namespace ops::testing::latent;

class CudaLatent : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { KVASIR_NEEDS_CUDA(); }
  const Inputs in_ = draw(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Shapes, CudaLatent, ::testing::ValuesIn(kCases), [](const auto& i) {
  return i.param.name;
});

// As backend/cpu's: f32 within 4e-6 on values of about 1; bf16 operands move a score by
// 2^-8 |q| |k| scale at most, |q| |k| about dim, and with it a probability.
TEST_P(CudaLatent, IsCloseToTheOracle) {
  const Case& c = GetParam();
  const auto got = run(*make(), c, in_), expected = run(*make_oracle(), c, in_);

  if (c.type == DType::f32) {
    EXPECT_EQ(got.selected, expected.selected);
    EXPECT_LE(worst_difference(got.out, expected.out), 4e-6);
  } else if (c.top_k == 0) {  // a rounded q may choose other keys of nearly the same score
    EXPECT_LE(worst_difference(got.out, expected.out), 4e-2 * std::sqrt(c.dim() / 40.0));
    Inputs wrong = in_;  // a planted fault: every roped key one place off
    std::rotate(wrong.rope.rbegin(), wrong.rope.rbegin() + c.rope_dim, wrong.rope.rend());
    EXPECT_GT(worst_difference(run(*make(), c, wrong).out, expected.out),
              4e-2 * std::sqrt(c.dim() / 40.0));
  }
}

TEST_P(CudaLatent, BitsDoNotDependOnBlocksChunksOrRecordedSteps) {
  const auto expected = run(*make(), GetParam(), in_);
  for (const auto& [block, chunk, how] :
       {std::tuple{8u, 1u, Mode::eager}, {64u, 7u, Mode::recorded}, {256u, 64u, Mode::recorded}}) {
    Case c = GetParam();
    c.block_tokens = block, c.chunk = chunk;
    EXPECT_EQ(run(*make(how), c, in_), expected)
        << "blocks of " << block << ", chunks of " << chunk;
  }
}

TEST(CudaLatentSelection, OfEverythingHasTheBitsOfNone) {
  KVASIR_NEEDS_CUDA();
  const Case dense{"dense", 4, 32, 8, DType::bf16, {150}};
  Case sparse = dense;
  sparse.top_k = 150;
  const Inputs in = draw(dense);

  EXPECT_TRUE(same_bits(run(*make(), sparse, in).out, run(*make(), dense, in).out));
}

// One row whose index keys are given, one head of weight 1 and q = 1: the score is relu(key).
std::vector<std::uint32_t> select_by_keys(std::vector<float> keys, std::uint32_t top_k) {
  const auto n = static_cast<std::uint32_t>(keys.size());
  const std::uint32_t dim = 2, block_tokens = 8;
  std::vector<float> wide(keys.size() * dim, 0.0f), q{1.0f, 0.0f}, weight{1.0f};
  for (std::size_t i = 0; i < keys.size(); ++i) wide[i * dim] = keys[i];
  std::vector<BlockId> blocks;
  for (std::uint32_t b = 0; b * block_tokens < n; ++b) blocks.push_back(BlockId{b});
  const KvRowView row{.blocks = blocks.data(), .length = n - 1, .n_new = 1};
  wide.resize(blocks.size() * block_tokens * dim);
  LatentLayerView view;
  view.index = reinterpret_cast<std::byte*>(wide.data()), view.type = DType::f32;
  view.index_dim = dim, view.block_tokens = block_tokens, view.rows = {&row, 1};
  std::vector<std::uint32_t> selected(top_k, ~0u);
  const auto device = make();
  device->ops().index_select(*device, {.q = mat_view(q.data(), 1, dim),
                                       .weights = mat_view(weight.data(), 1, 1),
                                       .kv = view,
                                       .n_heads = 1,
                                       .top_k = top_k,
                                       .selected = selected});
  return selected;
}

TEST(CudaIndexSelect, TiesGoToTheLowerPositionAndNaNsComeLast) {
  KVASIR_NEEDS_CUDA();
  using Positions = std::vector<std::uint32_t>;
  const float nan = std::nanf("");
  EXPECT_EQ(select_by_keys({2, 5, 2, 7, 2, 2}, 3), (Positions{0, 1, 3}));
  EXPECT_EQ(select_by_keys({0, -1, -9, 1, -3}, 3), (Positions{0, 1, 3}));  // relu ties
  EXPECT_EQ(select_by_keys({nan, 1, -1, nan, 3}, 3), (Positions{1, 2, 4}));
  EXPECT_EQ(select_by_keys({nan, 1, nan, nan, 3}, 3), (Positions{0, 1, 4}));
  EXPECT_EQ(select_by_keys({1, 2, 3}, 5), (Positions{0, 1, 2, ~0u, ~0u}));
}

TEST(CudaIndexSelect, OfManyEqualScoresTakesTheFirst) {
  KVASIR_NEEDS_CUDA();
  std::vector<float> keys(5000, 1.0f);
  keys[4321] = 2.0f, keys[999] = 0.5f;
  std::vector<std::uint32_t> expected;  // the one better score, and the first 2047 others but 999
  for (std::uint32_t p = 0; p < 2048; ++p)
    if (p != 999) expected.push_back(p);
  expected.push_back(4321);

  EXPECT_EQ(select_by_keys(keys, 2048), expected);
}

}  // namespace
}  // namespace kvasir::backend::cuda::testing
