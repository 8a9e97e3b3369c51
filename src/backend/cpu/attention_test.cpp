// Attention: equal to ref:mirror, and a query's bits independent of blocks, chunks, other rows,
// threads, instruction set.
#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/testing/kv.h"

namespace kvasir::backend::cpu::testing {
namespace {

struct Named {
  const char* name;
  AttentionCase c;
};

const Named kCases[] = {
    {"bf16", {}},
    {"f32", {.type = DType::f32}},
    {"f16", {.type = DType::f16}},
    {"f16_odd_shape", {.n_heads = 3, .n_kv_heads = 3, .head_dim = 24, .type = DType::f16}},
    {"window", {.window = 40, .lengths = {170}}},
    {"window_beyond_tiles", {.window = 100, .type = DType::f32, .lengths = {300}}},
    {"softcap", {.softcap = 2.0f}},
    {"sinks", {.window = 70, .sinks = true}},
    {"one_query_head_a_key_head", {.n_heads = 2, .head_dim = 80}},
    {"wide_heads", {.n_heads = 4, .n_kv_heads = 1, .head_dim = 256, .lengths = {90}}},
    {"narrow_heads", {.n_heads = 8, .n_kv_heads = 1, .head_dim = 8}},
    {"half_vectors", {.n_heads = 3, .n_kv_heads = 3, .head_dim = 24, .type = DType::f32}},
    {"three_rows", {.lengths = {70, 3, 129}}},
    {"both_ways", {.lengths = {70, 3, 129}, .both_ways = true}},
    {"both_ways_f32", {.type = DType::f32, .lengths = {64, 200}, .both_ways = true}},
    {"both_ways_window", {.window = 9, .lengths = {37, 200, 1}, .both_ways = true}},
    {"both_ways_window_beyond_tiles", {.window = 100, .lengths = {300, 65}, .both_ways = true}},
    {"both_ways_window_as_wide", {.window = 150, .lengths = {150, 149}, .both_ways = true}},
};

class Attention : public ::testing::TestWithParam<Named> {
 protected:
  std::mt19937 rng_{5};
  Activations in_ = draw(GetParam().c, rng_);
};

INSTANTIATE_TEST_SUITE_P(Shapes, Attention, ::testing::ValuesIn(kCases), [](const auto& i) {
  return i.param.name;
});

double worst_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    worst = std::isnan(d) ? std::numeric_limits<double>::infinity() : std::max(worst, d);
  }
  return worst;
}

TEST_P(Attention, EqualsTheMirrorBitForBit) {
  const auto cpu = make(), mirror = make_mirror();

  EXPECT_TRUE(
      same_bits(attend_all(*cpu, GetParam().c, in_), attend_all(*mirror, GetParam().c, in_)));
}

// docs/numerics.md: operands rounded to bf16 move a score by 2^-8 |q| |k| scale at most, here far
// less.
TEST_P(Attention, IsCloseToTheOracle) {
  const auto cpu = make(), oracle = make_oracle();

  const auto got = attend_all(*cpu, GetParam().c, in_),
             expected = attend_all(*oracle, GetParam().c, in_);

  EXPECT_LE(worst_difference(got, expected), GetParam().c.type == DType::bf16 ? 4e-2 : 4e-6);
}

TEST_P(Attention, BitsDoNotDependOnBlocksOrChunks) {
  const auto cpu = make();
  const auto expected = attend_all(*cpu, GetParam().c, in_);
  for (const std::uint32_t block : {8u, 64u, 256u}) {
    for (const std::uint32_t chunk : {0u, 1u, 7u, 64u, 100u}) {
      if (GetParam().c.both_ways && chunk != 0) continue;  // rows are whole
      AttentionCase c = GetParam().c;
      c.block_tokens = block;
      c.chunk = chunk;
      EXPECT_TRUE(same_bits(attend_all(*cpu, c, in_), expected))
          << "blocks of " << block << ", chunks of " << chunk;
    }
  }
}

TEST_P(Attention, BitsDoNotDependOnThreads) {
  const auto one = make(1), three = make(3);

  EXPECT_TRUE(
      same_bits(attend_all(*one, GetParam().c, in_), attend_all(*three, GetParam().c, in_)));
}

TEST_P(Attention, IsTheSameOnEveryInstructionSet) {
  const auto expected = attend_all(*make(2, Isa::portable), GetParam().c, in_);
  for (const auto& [name, device] : every_device(2))
    EXPECT_TRUE(same_bits(attend_all(*device, GetParam().c, in_), expected)) << name;
}

// Few heads on many threads: a lone query's tiles are split between them and merged in order.
TEST(AttentionSplit, OverTilesChangesNoBit) {
  const AttentionCase base{.n_heads = 3, .n_kv_heads = 1, .head_dim = 40, .lengths = {700}};
  std::vector<AttentionCase> cases(4, base);
  cases[1].window = 333, cases[1].sinks = true;
  cases[2].type = DType::f32, cases[2].softcap = 2.0f;
  cases[3].n_kv_heads = 3, cases[3].type = DType::f16, cases[3].lengths = {600, 20};
  const auto one = make(1), many = make(8);
  std::mt19937 rng{23};
  for (AttentionCase c : cases) {
    const Activations in = draw(c, rng);
    const auto expected = attend_all(*one, c, in);
    c.chunk = 1;
    EXPECT_TRUE(same_bits(attend_all(*many, c, in), expected)) << c.window << " " << c.softcap;
  }
}

TEST(AttentionSplit, OverTilesChangesNoBitOnAnyInstructionSet) {
  AttentionCase c{.n_heads = 3, .n_kv_heads = 1, .head_dim = 64, .window = 450, .lengths = {560}};
  std::mt19937 rng{23};
  const Activations in = draw(c, rng);
  const auto expected = attend_all(*make(1), c, in);
  c.chunk = 1;
  for (const auto& [name, device] : every_device(2))
    EXPECT_TRUE(same_bits(attend_all(*device, c, in), expected)) << name;
}

// A lone query's keys and values go straight into products of their own, in lanes or on tiles.
TEST(AttentionAlone, HasTheBitsOfAQueryAmongOthersForAnyNumberOfHeads) {
  const auto plain = make(2, Isa::portable);
  const auto devices = every_device(1);
  std::mt19937 rng{29};
  for (const std::uint32_t dim : {32u, 96u}) {
    for (const std::uint32_t heads : {1u, 2u, 3u, 5u, 6u, 7u, 8u, 16u, 17u}) {
      AttentionCase c{.n_heads = heads, .n_kv_heads = 1, .head_dim = dim, .lengths = {140}};
      if (heads % 3 == 0) c.window = 100, c.softcap = 2.0f;
      c.block_tokens = 64;
      const Activations in = draw(c, rng);
      const auto expected = attend_all(*plain, c, in);
      c.chunk = 1;
      for (const auto& [name, device] : devices)
        EXPECT_TRUE(same_bits(attend_all(*device, c, in), expected))
            << name << ", " << heads << " heads of " << dim;
    }
  }
}

// A value that is not finite reaches the queries that see it, on every instruction set alike, tiles
// too, which would multiply it by the zeros of those that do not; nor do pairs of keys, of which a
// window may begin with the second.
class AttentionNaN : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(AttentionNaN, TouchesNoQueryThatDoesNotSeeIt) {
  const std::uint32_t window = GetParam();
  const AttentionCase c{
      .n_heads = 2, .n_kv_heads = 1, .head_dim = 64, .window = window, .lengths = {150}};
  std::mt19937 rng{41};
  Activations in = draw(c, rng);
  const std::uint32_t row = 2 * 64;
  const auto clean = attend_all(*make(1, Isa::portable), c, in);
  in.v[100 * 64 + 3] = std::nanf("");
  AttentionCase alone = c;
  alone.chunk = 1, alone.block_tokens = 64;
  for (const auto& [name, device] : every_device(1)) {
    for (const AttentionCase& way : {c, alone}) {
      const auto got = attend_all(*device, way, in);
      for (std::size_t i = 0; i < got.size(); ++i) {
        const std::size_t query = i / row;
        const bool sees = query >= 100 && (window == 0 || query < 100 + window) && i % 64 == 3;
        ASSERT_TRUE(sees ? std::isnan(got[i]) : got[i] == clean[i]) << name << " " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Windows, AttentionNaN, ::testing::Values(0u, 21u));

// A window of w is a mask: with values that are one-hot in their position's column, what a query
// gives keys out of its reach is zero.
TEST(AttentionBothWays, AWindowReachesAsFarToEitherSide_MOD38) {
  const AttentionCase c{.n_heads = 1,
                        .n_kv_heads = 1,
                        .head_dim = 128,
                        .window = 9,
                        .type = DType::f32,
                        .lengths = {128},
                        .both_ways = true};
  std::mt19937 rng(3);
  Activations in = draw(c, rng);
  std::fill(in.v.begin(), in.v.end(), 0.0f);
  for (std::size_t i = 0; i < 128; ++i) in.v[i * 128 + i] = 1.0f;

  for (const auto& device : {make(), make_mirror(), make_oracle()}) {
    const auto weights = attend_all(*device, c, in);
    for (int q = 0; q < 128; ++q) {
      for (int k = 0; k < 128; ++k)
        EXPECT_EQ(weights[static_cast<std::size_t>(q * 128 + k)] != 0.0f, std::abs(q - k) <= 8)
            << device->name() << " " << q << " " << k;
    }
  }
}

// One-hot values again: a query gives weight to itself and to the keys before it that its window
// reaches, at any offset of the window it is fed in.
TEST(AttentionVisibility, KeysUpToTheQueryAndWithinTheWindowAreSeen_KV31) {
  for (const std::uint32_t window : {0u, 1u, 2u, 9u, 64u, 127u, 128u, 1000u}) {
    const AttentionCase c{.n_heads = 1,
                          .n_kv_heads = 1,
                          .head_dim = 128,
                          .window = window,
                          .type = DType::f32,
                          .lengths = {128}};
    std::mt19937 rng(3);
    Activations in = draw(c, rng);
    std::fill(in.v.begin(), in.v.end(), 0.0f);
    for (std::size_t i = 0; i < 128; ++i) in.v[i * 128 + i] = 1.0f;

    for (const auto& device : {make(), make_mirror(), make_oracle()}) {
      const auto weights = attend_all(*device, c, in);
      for (std::uint32_t q = 0; q < 128; ++q) {
        for (std::uint32_t k = 0; k < 128; ++k)
          ASSERT_EQ(weights[q * 128 + k] != 0.0f, k <= q && (window == 0 || q - k < window))
              << device->name() << " window " << window << " query " << q << " key " << k;
      }
    }
  }
}

TEST(AttentionRows, DoNotTouchEachOther) {
  std::mt19937 rng(9);
  const AttentionCase both{.lengths = {70, 90}};
  Activations in = draw(both, rng);
  const auto cpu = make();
  const auto clean = attend_all(*cpu, both, in);
  in.k[(70 + 5) * 2 * 64] = std::nanf("");  // a key of the second row

  const auto got = attend_all(*cpu, both, in);

  EXPECT_EQ(std::memcmp(got.data(), clean.data(), (70 + 5) * std::size_t{6} * 64 * sizeof(float)),
            0);
  EXPECT_TRUE(std::isnan(got[(70 + 5) * std::size_t{6} * 64]));
  EXPECT_TRUE(std::isnan(got.back() + got[(159) * std::size_t{6} * 64]));
}

}  // namespace
}  // namespace kvasir::backend::cpu::testing
