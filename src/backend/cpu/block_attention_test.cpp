// The block read (KV-32) over exact and encoded forms: a query sees all stored positions and the
// whole block, nothing is appended, cpu gives ref:mirror's bits, a row's bits are its own.
#include "ops/block_attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/testing/kv.h"

namespace kvasir::backend::cpu::testing {
namespace {

constexpr float kScale = 0.125f;

struct BlockCase {
  const char* name;
  AttentionCase c;  // lengths: stored positions and the block of each row
  std::uint32_t n_block = 0;
};

std::vector<BlockCase> cases() {
  const codec::KvCodec affine = codec::affine_kv(4, 32, codec::ScaleType::bf16);
  return {
      {"exact_bf16", {.lengths = {150}}, 40},
      {"exact_f32", {.type = DType::f32, .lengths = {70}}, 9},
      {"exact_f16", {.type = DType::f16, .lengths = {70}}, 65},
      {"two_rows", {.block_tokens = 16, .lengths = {100, 30}}, 20},
      {"windowed", {.window = 30, .lengths = {130, 35}}, 33},
      {"softcap_and_sinks", {.softcap = 5.0f, .sinks = true, .lengths = {90}}, 70},
      {"affine", {.lengths = {131}, .k_codec = affine, .v_codec = affine}, 67},
      {"affine_windowed",
       {.window = 20, .lengths = {99}, .k_codec = affine, .v_codec = affine},
       17},
      {"turbo",
       {.lengths = {80}, .k_codec = codec::turbo_keys_kv(8), .v_codec = codec::turbo_values_kv(3)},
       16}};
}

// Rows of a layer whose first positions are stored, and a block of each behind them.
class BlockRead {
 public:
  BlockRead(ops::Device& device, const BlockCase& test, const Activations& in)
      : device_(device),
        test_(test),
        in_(in),
        layer_(test.c, *std::max_element(test.c.lengths.begin(), test.c.lengths.end())) {
    const bool is_encoded = !test.c.k_codec.is_exact();
    for (std::uint32_t r = 0, token = 0; r < test.c.lengths.size(); token += test.c.lengths[r++]) {
      const std::uint32_t n_stored = test.c.lengths[r] - test.n_block;
      stored_.push_back({layer_.table(r), 0, 0, n_stored, token, is_encoded});
      blocks_.push_back({layer_.table(r), 0, n_stored, test.n_block, token + n_stored, is_encoded});
    }
    append(stored_);
  }

  // [tokens of all rows, n_heads · head_dim]; only the blocks' are written.
  std::vector<float> read() {
    std::vector<float> out(in_.q.size(), 0.0f);
    ops::block_attention(device_, {.q = view(in_.q, q_width()),
                                   .k = view(in_.k, kv_width()),
                                   .v = view(in_.v, kv_width()),
                                   .kv = layer_.view(blocks_),
                                   .n_heads = test_.c.n_heads,
                                   .scale = kScale,
                                   .softcap = test_.c.softcap,
                                   .sinks = sinks(),
                                   .out = mat_view(out.data(), n_tokens(), q_width())});
    return out;
  }
  // The blocks as ordinary tokens.
  std::vector<float> append_and_attend() {
    std::vector<float> out(in_.q.size(), 0.0f);
    append(blocks_);
    device_.ops().attention(device_, {.q = view(in_.q, q_width()),
                                      .kv = layer_.view(blocks_),
                                      .n_heads = test_.c.n_heads,
                                      .scale = kScale,
                                      .softcap = test_.c.softcap,
                                      .sinks = sinks(),
                                      .out = mat_view(out.data(), n_tokens(), q_width())});
    return out;
  }

  // A query over what the planes hold, decoded, in f64.
  std::vector<double> naive(std::size_t row, std::uint32_t token, std::uint32_t head) const {
    const KvLayerView kv = layer_.view(blocks_);
    const KvRowView& block = blocks_[row];
    const std::uint32_t dim = kv.head_dim, kv_head = head * kv.n_kv_heads / test_.c.n_heads;
    const std::uint32_t end = block.length + block.n_new,
                        begin =
                            kv.window && block.length > kv.window ? block.length - kv.window : 0;
    std::vector<double> out(dim, 0.0), scores;
    double sum = sinks() ? std::exp(double(sinks()[head])) : 0.0;
    for (std::uint32_t p = begin; p < end; ++p) {
      const auto k = decoded(kv.k_side(block.is_encoded), block, kv_head, p),
                 v = decoded(kv.v_side(block.is_encoded), block, kv_head, p);
      double s = 0.0;
      for (std::size_t d = 0; d < dim; ++d)
        s += double(in_.q[std::size_t{token} * q_width() + head * dim + d]) * double(k[d]);
      s *= double(kScale);
      if (test_.c.softcap > 0) s = double(test_.c.softcap) * std::tanh(s / double(test_.c.softcap));
      sum += std::exp(s);
      for (std::size_t d = 0; d < dim; ++d) out[d] += std::exp(s) * double(v[d]);
    }
    if (codec::is_rotated(kv.v_side(block.is_encoded).codec)) codec::unrotate(out.data(), dim);
    for (double& x : out) x /= sum;
    return out;
  }

  const std::vector<KvRowView>& blocks() const { return blocks_; }
  KvLayerView layer() const { return layer_.view(blocks_); }

 private:
  std::uint32_t q_width() const { return test_.c.n_heads * test_.c.head_dim; }
  std::uint32_t kv_width() const { return test_.c.n_kv_heads * test_.c.head_dim; }
  std::uint32_t n_tokens() const { return static_cast<std::uint32_t>(total_tokens(test_.c)); }
  const float* sinks() const { return test_.c.sinks ? in_.sinks.data() : nullptr; }
  ConstMatView view(const std::vector<float>& x, std::uint32_t width) const {
    return {x.data(), n_tokens(), width, width};
  }
  void append(std::span<const KvRowView> rows) {
    device_.ops().kv_append(
        device_,
        {.k = view(in_.k, kv_width()), .v = view(in_.v, kv_width()), .kv = layer_.view(rows)});
  }
  std::vector<float> decoded(const KvEncodedSide& side,
                             const KvRowView& row,
                             std::uint32_t head,
                             std::uint32_t position) const {
    const KvLayerView kv = layer_.view(blocks_);
    std::vector<float> out(kv.head_dim);
    const std::size_t index =
        kv.row_index(row.blocks[position / kv.block_tokens], head, position % kv.block_tokens);
    codec::decode_row(side.codec, side.row(index), kv.head_dim, out.data());
    return out;
  }

  ops::Device& device_;
  const BlockCase& test_;
  const Activations& in_;
  KvLayer layer_;
  std::vector<KvRowView> stored_, blocks_;
};

class BlockAttention : public ::testing::TestWithParam<BlockCase> {};

TEST_P(BlockAttention, SeesAllStoredPositionsAndTheWholeBlock_KV32) {
  std::mt19937 rng(3);
  const Activations in = draw(GetParam().c, rng);
  const auto oracle = ref::make_ref_device(ref::RefMode::oracle);
  BlockRead rows(*oracle, GetParam(), in);
  const std::uint32_t dim = GetParam().c.head_dim, n_heads = GetParam().c.n_heads;

  const std::vector<float> out = rows.read();

  for (std::size_t r = 0; r < rows.blocks().size(); ++r) {
    const KvRowView& block = rows.blocks()[r];
    for (const std::uint32_t i : {0u, block.n_new / 2, block.n_new - 1}) {
      for (const std::uint32_t head : {0u, n_heads - 1}) {
        const std::uint32_t token = block.first_token + i;
        const auto expected = rows.naive(r, token, head);
        for (std::size_t d = 0; d < dim; ++d)
          ASSERT_NEAR(double(out[(std::size_t{token} * n_heads + head) * dim + d]), expected[d],
                      1e-5)
              << "row " << r << " query " << i << " head " << head;
      }
    }
  }
}

TEST_P(BlockAttention, OnTheCpuHasTheMirrorsBits) {
  std::mt19937 rng(4);
  const Activations in = draw(GetParam().c, rng);
  const auto mirror = ref::make_ref_device(ref::RefMode::mirror);
  const auto cpu = make(1), threaded = make(2);

  const std::vector<float> expected = BlockRead(*mirror, GetParam(), in).read();

  EXPECT_EQ(BlockRead(*cpu, GetParam(), in).read(), expected);
  EXPECT_EQ(BlockRead(*threaded, GetParam(), in).read(), expected);
  BlockCase small_blocks = GetParam();
  small_blocks.c.block_tokens = 8;
  EXPECT_EQ(BlockRead(*cpu, small_blocks, in).read(), expected);
}

TEST_P(BlockAttention, AppendsNothing) {
  std::mt19937 rng(5);
  const Activations in = draw(GetParam().c, rng), other = draw(GetParam().c, rng);
  const auto cpu = make(1);
  BlockRead untouched(*cpu, GetParam(), in), read(*cpu, GetParam(), in);

  read.read();

  EXPECT_EQ(read.append_and_attend(), untouched.append_and_attend());
}

INSTANTIATE_TEST_SUITE_P(Forms, BlockAttention, ::testing::ValuesIn(cases()), [](const auto& test) {
  return std::string(test.param.name);
});

TEST(BlockAttentionRows, OfARowDoNotDependOnOthers) {
  std::mt19937 rng(6);
  const BlockCase both{"both", {.lengths = {100, 30}}, 20}, first{"first", {.lengths = {100}}, 20};
  const Activations in = draw(both.c, rng);
  const auto cpu = make(1);

  const auto together = BlockRead(*cpu, both, in).read(), alone = BlockRead(*cpu, first, in).read();

  const std::size_t n = total_tokens(first.c) * first.c.n_heads * first.c.head_dim;
  EXPECT_EQ(std::vector<float>(together.begin(), together.begin() + std::ptrdiff_t(n)),
            std::vector<float>(alone.begin(), alone.begin() + std::ptrdiff_t(n)));
}

TEST(BlockAttentionRows, WithoutStoredPositionsAreRefused_KV32) {
  const BlockId block{0};
  const KvRowView full{.blocks = &block, .length = 3, .n_new = 2},
      empty{.blocks = &block, .length = 0, .n_new = 2};
  KvLayerView kv;
  kv.rows = {&full, 1};
  EXPECT_TRUE(ops::check_block_read(kv));
  kv.rows = {&empty, 1};
  ASSERT_FALSE(ops::check_block_read(kv));
  EXPECT_EQ(ops::check_block_read(kv).error().what, "cache is empty");
}

}  // namespace
}  // namespace kvasir::backend::cpu::testing
