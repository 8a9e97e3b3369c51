#include "fit/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "fit/report.h"

namespace kvasir::fit {
namespace {

std::uint64_t below(std::mt19937_64& rng, std::uint64_t n) { return rng() % n; }

Facts random_facts(std::mt19937_64& rng) {
  Facts f;
  f.weight_bytes = below(rng, 4'000'000'000);
  f.fixed_bytes = below(rng, 50'000'000);
  f.step_token_bytes = below(rng, 600'000);
  f.chunk = static_cast<std::uint32_t>(1 + below(rng, 2048));
  f.block_tokens = 8u << below(rng, 7);
  f.max_positions = below(rng, 5000);
  const bool encodes = below(rng, 2) == 0;
  if (encodes) f.transition = below(rng, 3) == 0 ? 0 : below(rng, 6000);
  for (std::uint64_t i = 0, n = below(rng, 6); i < n; ++i) {
    StateLayer layer;
    layer.exact_bytes = below(rng, 8192);
    layer.encoded_bytes = encodes && below(rng, 3) > 0 ? layer.exact_bytes / 3 : 0;
    layer.window = below(rng, 2) ? 0 : static_cast<std::uint32_t>(below(rng, 1500));
    layer.constant_bytes = below(rng, 4) ? 0 : below(rng, 100'000);
    f.state.push_back(layer);
  }
  f.attention_memory = below(rng, 2) ? ref_attention() : tiled_attention();
  f.scores = {.n_heads = below(rng, 64),
              .head_dim = 64,
              .global_head_dim = 128,
              .window = below(rng, 600),
              .n_layers = below(rng, 4),
              .layer_types = {ScoreLayer::sliding, ScoreLayer::recurrent}};
  return f;
}

// FIT-4 again, word by word.
std::uint64_t naive_bytes(const Facts& f, std::uint64_t m, bool is_encoded) {
  std::uint64_t total = 0;
  for (const StateLayer& layer : f.state) {
    std::uint64_t tokens = m;
    if (layer.window > 0)
      tokens = std::min<std::uint64_t>(m, std::uint64_t{layer.window} + f.chunk + f.block_tokens);
    const std::uint64_t blocks = (tokens + f.block_tokens - 1) / f.block_tokens;
    const bool uses_encoded = is_encoded && layer.encoded_bytes > 0;
    total += blocks * f.block_tokens * (uses_encoded ? layer.encoded_bytes : layer.exact_bytes);
    total += layer.constant_bytes;
  }
  return total;
}

// FIT-5: what a row holds when it has just reached m tokens, the conversion at T included.
std::uint64_t naive_moment(const Facts& f, std::uint64_t m) {
  if (m < f.transition) return naive_bytes(f, m, false);
  if (m > f.transition || f.transition == 0) return naive_bytes(f, m, true);
  std::uint64_t largest = 0;
  for (const StateLayer& layer : f.state) {
    Facts alone = f;
    alone.state = {layer};
    alone.state[0].constant_bytes = 0;
    if (layer.encoded_bytes > 0) largest = std::max(largest, naive_bytes(alone, m, true));
  }
  return naive_bytes(f, m, false) + largest;
}

TEST(FitMemory, PeakIsTheLargestMomentOfARowsLife) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    std::mt19937_64 rng(seed);
    const Facts f = random_facts(rng);
    std::uint64_t peak = 0;

    for (std::uint64_t n = 0; n <= 7000; ++n) {
      peak = std::max(peak, naive_moment(f, n));
      ASSERT_EQ(kv_peak(f, n), peak) << "seed " << seed << " n " << n;
      ASSERT_EQ(kv_bytes(f, n), naive_bytes(f, n, n >= f.transition));
    }
  }
}

TEST(FitMemory, LongestContextFitsAndOneMoreDoesNot) {  // FIT-11, test 1
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    std::mt19937_64 rng(seed);
    const Facts f = random_facts(rng);
    const std::uint64_t usable = below(rng, 2 * total_bytes(f, f.max_positions) + 1);
    std::uint64_t naive = 0;
    for (std::uint64_t n = 0; n <= f.max_positions; ++n) {
      ASSERT_GE(total_bytes(f, n + 1), total_bytes(f, n)) << "seed " << seed << " n " << n;
      if (fits(f, n, usable)) naive = n;
    }

    const std::uint64_t longest = max_context(f, usable);

    EXPECT_EQ(longest, naive) << "seed " << seed;
    EXPECT_TRUE(fits(f, longest, usable) || !fits(f, 0, usable));
    EXPECT_TRUE(longest == f.max_positions || !fits(f, longest + 1, usable));
  }
}

TEST(FitMemory, TotalIsTheSumOfItsPartsAndFitsUpToTheLastByte) {  // FIT-2
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 rng(seed);
    const Facts f = random_facts(rng);
    for (int i = 0; i < 20; ++i) {
      const std::uint64_t n = below(rng, 7000);
      const std::uint64_t total =
          f.weight_bytes + kv_peak(f, n) + transient_bytes(f, n) + f.fixed_bytes;

      ASSERT_EQ(total_bytes(f, n), total) << "seed " << seed << " n " << n;
      // A row shorter than a step still needs the room of a whole one, which the pool leaves free.
      const std::uint64_t needed = std::max(
          total, f.weight_bytes + kv_peak(f, n) + transient_bytes(f, f.chunk) + f.fixed_bytes);
      EXPECT_TRUE(n < f.chunk || needed == total);
      EXPECT_TRUE(fits(f, n, needed)) << "seed " << seed << " n " << n;
      EXPECT_TRUE(needed == 0 || !fits(f, n, needed - 1)) << "seed " << seed << " n " << n;
    }
  }
}

TEST(FitMemory, AWholeStepMustFitHoweverShortTheRow) {  // FIT-2, FIT-9, FIT-22
  Facts f;
  f.weight_bytes = 1'000'000;
  f.step_token_bytes = 1000;
  f.chunk = 512;
  f.max_positions = 512;
  const std::uint64_t step = 1'000'000 + 512 * 1000;

  EXPECT_FALSE(fits(f, 0, step - 1)) << "no state at all, as an encoder";
  EXPECT_EQ(max_context(f, step - 1), 0u);
  EXPECT_EQ(max_context(f, step), 512u);

  f.state = {{.exact_bytes = 100}};
  f.kv_budget_bytes = 100 * 512;
  EXPECT_FALSE(fits(f, 1, step + 6399)) << "a block of 64 tokens beside the step";
  EXPECT_TRUE(fits(f, 1, step + 6400));
  EXPECT_EQ(max_context(f, step + 6400), 64u);
}

TEST(FitMemory, AStepTakesItsTokensAndItsScores) {  // FIT-6
  Facts f;
  f.chunk = 512;

  EXPECT_EQ(transient_bytes(f, 0), 0u);
  EXPECT_EQ(transient_bytes(f, 100), 100u * 550'000) << "of an executor that does not say";
  EXPECT_EQ(transient_bytes(f, 512), 512u * 550'000);
  EXPECT_EQ(transient_bytes(f, 9000), 512u * 550'000);

  f.step_token_bytes = 1000;
  f.scores = {.n_heads = 8,
              .head_dim = 64,
              .global_head_dim = 64,
              .window = 0,
              .n_layers = 3,
              .layer_types = {}};
  EXPECT_EQ(transient_bytes(f, 9000), 512u * 1000) << "tiled attention has no scores";
  f.attention_memory = ref_attention();
  EXPECT_EQ(transient_bytes(f, 100), 100u * 1000 + 8u * 100 * 100 * 4);
  EXPECT_EQ(transient_bytes(f, 9000), 512u * 1000 + 8u * 512 * 9000 * 4);
}

Facts four_bit_facts() {
  Facts f;
  f.max_positions = 8192;
  f.transition = 512;
  f.step_token_bytes = 1000;
  f.state = {{.exact_bytes = 4000, .encoded_bytes = 1000},
             {.exact_bytes = 4000, .encoded_bytes = 1000}};
  return f;
}

TEST(FitMemory, PeakStaysFlatAfterTheDropAtTheTransition) {  // FIT-5, test 2
  const Facts f = four_bit_facts();
  const std::uint64_t at_t = 2 * 4000 * 512 + 1000 * 512;

  EXPECT_EQ(kv_peak(f, 448), 2u * 4000 * 448);
  EXPECT_EQ(kv_peak(f, 512), at_t);
  EXPECT_EQ(kv_bytes(f, 513), 2u * 1000 * 576);
  EXPECT_EQ(kv_peak(f, 513), at_t);
  EXPECT_EQ(kv_peak(f, 2304), at_t);
  EXPECT_EQ(kv_peak(f, 2305), 2u * 1000 * 2368);
}

TEST(FitMemory, EagerRowsHaveNoPeakOfExactState) {
  Facts f = four_bit_facts();
  f.transition = 0;

  EXPECT_EQ(kv_peak(f, 64), 2u * 1000 * 64);
}

TEST(FitMemory, WindowedLayersStopAtWindowChunkAndABlock) {  // FIT-4, KV-60
  Facts f;
  f.chunk = 100;
  f.state = {{.exact_bytes = 10, .encoded_bytes = 0, .window = 500}};

  EXPECT_EQ(kv_bytes(f, 500), 10u * 512);
  EXPECT_EQ(kv_bytes(f, 664), 10u * 704);
  EXPECT_EQ(kv_bytes(f, 1'000'000), 10u * 704);
}

TEST(FitMemory, SumsThatOverflowFitNowhere) {
  Facts f;
  f.max_positions = 1u << 20;
  f.state = {{.exact_bytes = ~std::uint64_t{0} / 2}};

  EXPECT_EQ(total_bytes(f, f.max_positions), ~std::uint64_t{0});
  EXPECT_EQ(max_context(f, 1u << 30), 0u);
}

TEST(FitMemory, PoolIsWhatWeightsAStepAndFixedLeave) {  // FIT-9
  Facts f;
  f.weight_bytes = 1000;
  f.fixed_bytes = 10;
  f.chunk = 4;
  f.step_token_bytes = 5;

  EXPECT_EQ(kv_budget(f, 2000), 970u);
  EXPECT_EQ(kv_budget(f, 1000), 0u);
}

TEST(FitFacts, StateOfAListFollowsTheScheme) {  // FIT-4, KV-10, KV-17, KV-61
  const KvList list{{.n_kv_heads = 2, .head_dim = 128, .window = 0},
                    {.n_kv_heads = 2, .head_dim = 128, .window = 512}};
  const auto bytes = [&](kv::KvScheme scheme) {
    const auto state = state_of(list, scheme);
    EXPECT_TRUE(state);
    return std::array{(*state)[0].exact_bytes, (*state)[0].encoded_bytes,
                      (*state)[1].encoded_bytes};
  };
  using A = std::array<std::uint64_t, 3>;

  EXPECT_EQ(bytes({}), (A{1024, 0, 0}));
  EXPECT_EQ(bytes({.kind = kv::KvSchemeKind::affine_uniform, .bits = 4}), (A{1024, 288, 288}));
  EXPECT_EQ(bytes({.kind = kv::KvSchemeKind::turbo}), (A{1024, 400, 0}));
}

TEST(FitFacts, SchemesThatALayerCannotHaveAreRefused) {
  const KvList list{{.n_kv_heads = 1, .head_dim = 80, .window = 0}};

  const auto state = state_of(list, {.kind = kv::KvSchemeKind::turbo});

  ASSERT_FALSE(state);
  EXPECT_NE(state.error().what.find("head_dim 80"), std::string::npos) << state.error().what;
}

TEST(FitFacts, RecurrentAndLatentLayersFollowFit4) {
  const StateLayer delta =
      delta_layer({.v_heads = 32, .v_dim = 128, .k_heads = 16, .k_dim = 64, .conv_width = 4}, 2);

  EXPECT_EQ(delta.constant_bytes, 32u * 128 * 64 * 4 + 3 * (2 * 16 * 64 + 32 * 128) * 2);
  EXPECT_EQ(short_conv_layer(3, 2048, 2).constant_bytes, 2u * 2048 * 2);
  const KvList list{{.recurrent = {.conv_kernel = 4,
                                   .n_channels = 2 * 16 * 64 + 32 * 128,
                                   .n_value_heads = 32,
                                   .value_dim = 128,
                                   .key_dim = 64}},
                    {.recurrent = {.conv_kernel = 3, .n_channels = 2048}}};
  const auto state = state_of(list, {});
  ASSERT_TRUE(state) << state.error().what;
  EXPECT_EQ((*state)[0].constant_bytes, delta.constant_bytes);
  EXPECT_EQ((*state)[0].exact_bytes, 0u);
  EXPECT_EQ((*state)[1].constant_bytes, 2u * 2048 * 2);
  EXPECT_EQ(latent_layer(512, 64, 0, 2).exact_bytes, 576u * 2);
  EXPECT_EQ(latent_layer(512, 64, 128, 2).exact_bytes, 704u * 2);

  const auto latent = state_of({{.latent = {.rank = 512, .rope_dim = 64, .index_dim = 128}}}, {});
  ASSERT_TRUE(latent);
  EXPECT_EQ((*latent)[0].exact_bytes, 704u * 2);
  EXPECT_EQ((*latent)[0].encoded_bytes, 0u);
}

}  // namespace
}  // namespace kvasir::fit
