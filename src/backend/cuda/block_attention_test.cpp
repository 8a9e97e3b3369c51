// The block read (KV-32) on a GPU: near the oracle where a query sees its row's whole block and far
// from it where it sees no more than causally, and a row's bits are its own.
#include "ops/block_attention.h"

#include <gtest/gtest.h>

#include "backend/cuda/testing/host_values.h"

namespace kvasir::backend::cuda::testing {
namespace {

using namespace ops::testing;

constexpr float kScale = 0.125f;

struct BlockCase {
  std::string name;
  AttentionCase c;  // lengths: stored positions and the block of each row
  std::uint32_t n_block = 0;
};

std::vector<BlockCase> cases() {
  const codec::KvCodec affine = codec::affine_kv(8, 64, codec::ScaleType::bf16);
  return {
      {"exact", {.lengths = {350}}, 40},
      {"f32", {.type = DType::f32, .lengths = {70}}, 9},
      {"two_rows", {.block_tokens = 16, .lengths = {100, 30}}, 20},
      {"windowed", {.window = 30, .lengths = {130, 35}}, 33},
      {"softcap_and_sinks", {.softcap = 5.0f, .sinks = true, .lengths = {90}}, 70},
      {"affine", {.lengths = {331}, .k_codec = affine, .v_codec = affine}, 67},
      {"turbo",
       {.lengths = {80}, .k_codec = codec::turbo_keys_kv(8), .v_codec = codec::turbo_values_kv(3)},
       16}};
}

// [tokens of all rows, n_heads · head_dim] of queries over the whole block, or causally; zeros for
// stored tokens.
std::vector<float> read(ops::Device& device,
                        const BlockCase& test,
                        const Activations& in,
                        bool is_block_read = true) {
  const AttentionCase& c = test.c;
  KvLayer layer(c, *std::max_element(c.lengths.begin(), c.lengths.end()));
  const bool is_encoded = !c.k_codec.is_exact();
  std::vector<KvRowView> stored, blocks;
  for (std::uint32_t r = 0, token = 0; r < c.lengths.size(); token += c.lengths[r++]) {
    const std::uint32_t n_stored = c.lengths[r] - test.n_block;
    stored.push_back({layer.table(r), 0, 0, n_stored, token, is_encoded});
    blocks.push_back({layer.table(r), 0, n_stored, test.n_block, token + n_stored, is_encoded});
  }
  const auto n = static_cast<std::uint32_t>(total_tokens(c));
  const std::uint32_t q_width = c.n_heads * c.head_dim, kv_width = c.n_kv_heads * c.head_dim;
  const ConstMatView k{in.k.data(), n, kv_width, kv_width}, v{in.v.data(), n, kv_width, kv_width},
      q{in.q.data(), n, q_width, q_width};
  std::vector<float> out(in.q.size(), 0.0f);
  const MatView to = mat_view(out.data(), n, q_width);
  const float* const sinks = c.sinks ? in.sinks.data() : nullptr;
  device.ops().kv_append(device, {.k = k, .v = v, .kv = layer.view(stored)});
  if (is_block_read) {
    ops::block_attention(device, {.q = q,
                                  .k = k,
                                  .v = v,
                                  .kv = layer.view(blocks),
                                  .n_heads = c.n_heads,
                                  .scale = kScale,
                                  .softcap = c.softcap,
                                  .sinks = sinks,
                                  .out = to});
  } else {
    device.ops().kv_append(device, {.k = k, .v = v, .kv = layer.view(blocks)});
    device.ops().attention(device, {.q = q,
                                    .kv = layer.view(blocks),
                                    .n_heads = c.n_heads,
                                    .scale = kScale,
                                    .softcap = c.softcap,
                                    .sinks = sinks,
                                    .out = to});
  }
  return out;
}

class CudaBlockAttention : public ::testing::TestWithParam<BlockCase> {
 protected:
  void SetUp() override { KVASIR_NEEDS_CUDA(); }
};
INSTANTIATE_TEST_SUITE_P(Forms,
                         CudaBlockAttention,
                         ::testing::ValuesIn(cases()),
                         [](const auto& i) { return i.param.name; });

TEST_P(CudaBlockAttention, IsTheOraclesAndNoCausalOne_KV32) {
  std::mt19937 rng(3);
  const BlockCase& test = GetParam();
  const Activations in = draw(test.c, rng);
  const auto expected = read(*make_oracle(), test, in);
  const double bound = test.c.type == DType::f32 ? 4e-6 : test.c.k_codec.is_exact() ? 4e-2 : 6e-2;

  EXPECT_LE(worst_difference(read(*make(), test, in), expected), bound);
  EXPECT_GT(worst_difference(read(*make(), test, in, /*is_block_read=*/false), expected),
            2 * bound);
}

TEST_P(CudaBlockAttention, BitsDoNotDependOnBlocksOrOtherRows) {
  std::mt19937 rng(4);
  const Activations in = draw(GetParam().c, rng);
  const auto expected = read(*make(), GetParam(), in);
  BlockCase other = GetParam();
  other.c.block_tokens = 8;
  EXPECT_TRUE(same_bits(read(*make(Mode::recorded), other, in), expected));
  BlockCase first = GetParam();
  first.c.lengths.resize(1);

  const auto alone = read(*make(), first, in);

  EXPECT_EQ(std::memcmp(alone.data(), expected.data(),
                        total_tokens(first.c) * first.c.n_heads * first.c.head_dim * sizeof(float)),
            0);
}

}  // namespace
}  // namespace kvasir::backend::cuda::testing
