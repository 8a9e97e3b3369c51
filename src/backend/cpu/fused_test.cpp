// Fused entries: the bits of their compositions, on every instruction set.
#include "ops/fused.h"

#include <gtest/gtest.h>

#include "backend/cpu/testing/kv.h"

namespace kvasir::backend::cpu::testing {
namespace {

struct BlockCase {
  std::string gate, up, down;  // up empty: gate holds both
  std::uint32_t ff;
};

struct Block {
  std::vector<std::unique_ptr<ops::PackedMatrix>> packed;
  std::vector<ops::LinearPart> parts;
  ops::LinearPart down;
  std::vector<float> biases;
};

constexpr std::uint32_t kIn = 256, kOut = 40;

Block make_block(ops::Device& device, const BlockCase& c, std::mt19937& rng) {
  Block out;
  out.biases = random_floats(std::size_t{2} * c.ff, rng);
  const auto add = [&](const std::string& type, std::uint32_t n_out, std::uint32_t n_in) {
    out.packed.push_back(*device.pack(StoredWeight(type, n_out, n_in, rng).view(), {}));
    return out.packed.back().get();
  };
  if (c.up.empty()) {
    out.parts = {{add(c.gate, 2 * c.ff, kIn), out.biases.data()}};
  } else {
    out.parts = {{add(c.gate, c.ff, kIn), nullptr}, {add(c.up, c.ff, kIn), out.biases.data()}};
  }
  out.down = {add(c.down, kOut, c.ff), out.biases.data()};
  return out;
}

TEST(GatedMlp, OfManyRowsHasTheBitsOfItsComposition) {
  const std::vector<BlockCase> cases{
      {"bf16", "bf16", "bf16", 96},  {"bf16", "", "q8_0", 128},
      {"q4_0", "q4_0", "q4_0", 160}, {"q4_1", "q4_1", "q4_1", 96},
      {"q6_k", "q6_k", "q6_k", 256}, {"affine4g64", "affine8g64", "affine4g64", 192},
      {"f32", "f32", "f32", 64},     {"bf16", "bf16", "bf16", 72},
      {"q8_0", "bf16", "bf16", 64},  {"q4_0", "q4_0", "affine4g128", 128}};
  for (const auto& [name, device] : every_device(2)) {
    for (const BlockCase& c : cases) {
      std::mt19937 rng{71};
      const Block block = make_block(*device, c, rng);
      for (const std::uint32_t m : {1u, 64u, 75u, 300u, 530u}) {
        const auto x = random_floats(std::size_t{m} * kIn, rng);
        std::vector<float> scratch(std::size_t{m} * 2 * c.ff), got(std::size_t{m} * kOut),
            expected(got);
        const auto args = [&](std::vector<float>& out) {
          return ops::GatedMlpArgs{.gated = {.x = {x.data(), m, kIn, kIn},
                                             .parts = block.parts,
                                             .activation = ops::Activation::silu,
                                             .gate_up = mat_view(scratch.data(), m, 2 * c.ff)},
                                   .down = block.down,
                                   .out = mat_view(out.data(), m, kOut)};
        };

        device->ops().gated_mlp(*device, args(got));

        ops::gated_mlp_composed(*device, args(expected));
        EXPECT_TRUE(same_bits(got, expected))
            << name << " " << c.gate << " " << c.down << " " << m << " rows";
      }
    }
  }
}

TEST(AddNorm, HasTheBitsOfItsComposition) {
  std::mt19937 rng{73};
  for (const auto& [name, device] : every_device(2)) {
    for (const std::uint32_t m : {1u, 3u, 90u}) {
      const std::uint32_t width = 515;
      const auto y = random_floats(std::size_t{m} * width, rng), weight = random_floats(width, rng);
      auto x = random_floats(std::size_t{m} * width, rng), x_expected = x;
      std::vector<float> got(x.size()), expected(x.size());
      const auto args = [&](std::vector<float>& sum, std::vector<float>& out) {
        return ops::AddNormArgs{.x = mat_view(sum.data(), m, width),
                                .y = {y.data(), m, width, width},
                                .alpha = 0.7f,
                                .weight = weight.data(),
                                .eps = 1e-6f,
                                .out = mat_view(out.data(), m, width)};
      };

      device->ops().add_norm(*device, args(x, got));

      ops::add_norm_composed(*device, args(x_expected, expected));
      EXPECT_TRUE(same_bits(x, x_expected) && same_bits(got, expected)) << name << " " << m;
    }
  }
}

TEST(QueryKey, HasTheBitsAndTheBytesOfItsComposition) {
  constexpr std::uint32_t kHeads = 4, kKvHeads = 2, kDim = 64, kMost = 100, kPairs = kDim / 2;
  const codec::KvCodec affine = codec::affine_kv(8, 64, codec::ScaleType::bf16);
  for (const bool is_encoded : {false, true}) {
    AttentionCase c;
    c.lengths = {kMost, kMost};
    c.n_heads = kHeads, c.n_kv_heads = kKvHeads, c.head_dim = kDim;
    if (is_encoded) c.k_codec = c.v_codec = affine;
    for (const auto& [name, device] : every_device(2)) {
      for (const std::vector<std::uint32_t>& lengths :
           {std::vector<std::uint32_t>{70, 9}, {1, 40}, {0, 8}, {1, 7}, {1, 1}}) {
        std::mt19937 rng{79};
        KvLayer layers[2] = {KvLayer(c, kMost), KvLayer(c, kMost)};
        std::vector<float> results[2];
        const std::uint32_t n = lengths[0] + lengths[1], q_width = kHeads * kDim,
                            width = q_width + 2 * kKvHeads * kDim;
        const auto qkv = random_floats(std::size_t{n} * width, rng),
                   norm = random_floats(kDim, rng), table = random_floats(kMost * kPairs, rng);
        std::vector<std::uint32_t> positions;
        for (const std::uint32_t length : lengths)
          for (std::uint32_t i = 0; i < length; ++i) positions.push_back(3 + i);
        for (int i = 0; i < 2; ++i) {
          std::vector<KvRowView> rows;
          for (std::uint32_t r = 0; r < 2; ++r) {
            if (lengths[r] > 0)
              rows.push_back(
                  {layers[i].table(r), 0, 3, lengths[r], r == 0 ? 0 : lengths[0], is_encoded});
          }
          results[i] = qkv;
          const MatView all = mat_view(results[i].data(), n, width);
          const ops::QueryKeyArgs args{.q = all.columns(0, q_width),
                                       .k = all.columns(q_width, kKvHeads * kDim),
                                       .v = all.columns(q_width + kKvHeads * kDim, kKvHeads * kDim),
                                       .q_norm = norm.data(),
                                       .k_norm = norm.data(),
                                       .q_group = kDim,
                                       .k_group = kDim,
                                       .eps = 1e-6f,
                                       .head_dim = kDim,
                                       .n_pairs = kPairs,
                                       .positions = positions,
                                       .cos = table.data(),
                                       .sin = table.data(),
                                       .kv = layers[i].view(rows)};

          i == 0 ? device->ops().query_key(*device, args) : ops::query_key_composed(*device, args);
        }

        EXPECT_TRUE(same_bits(results[0], results[1])) << name;
        EXPECT_EQ(layers[0].planes(), layers[1].planes()) << name;
      }
    }
  }
}

}  // namespace
}  // namespace kvasir::backend::cpu::testing
