#include "fit/scores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace kvasir::fit {
namespace {

// FIT-7 again, word by word.
std::uint64_t naive_scores(const ScoreFacts& f,
                           const AttentionMemory& a,
                           std::uint64_t n,
                           std::uint64_t chunk) {
  if (a.fuses_all) return 0;
  const std::uint64_t q = n < chunk ? n : chunk;
  if (f.n_heads <= 0 || q <= a.fused_max_queries) return 0;
  std::uint64_t largest = 0;
  const std::uint64_t layers = f.n_layers == 0 ? f.layer_types.size() : f.n_layers;
  for (std::uint64_t i = 0; i < layers; ++i) {
    const bool is_known = i < f.layer_types.size();
    if (is_known && f.layer_types[i] == ScoreLayer::recurrent) continue;
    const bool windowed = is_known && f.layer_types[i] == ScoreLayer::sliding && f.window > 0;
    const std::uint32_t dim = windowed ? f.head_dim : f.global_head_dim;
    if (std::count(a.fused_head_dims.begin(), a.fused_head_dims.end(), dim)) continue;
    std::uint64_t keys = n;
    if (windowed && f.window + q < n) keys = f.window + q;
    largest = std::max(largest, f.n_heads * q * keys * a.score_bytes);
  }
  return largest;
}

TEST(FitScores, EqualTheFormulaWithMissingTypesNoWindowAndRecurrentLayers) {  // FIT-7, test 3
  const AttentionMemory backends[] = {ref_attention(), mlx_attention(), tiled_attention()};
  std::size_t n_not_zero = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    std::mt19937_64 rng(seed);
    ScoreFacts f{.n_heads = rng() % 3 ? rng() % 64 : 0,
                 .head_dim = rng() % 2 ? 64u : 256u,
                 .global_head_dim = rng() % 2 ? 128u : 512u,
                 .window = rng() % 2 ? 0 : rng() % 900,
                 .n_layers = rng() % 6,
                 .layer_types = {}};
    for (std::uint64_t i = 0, n = rng() % 6; i < n; ++i)
      f.layer_types.push_back(static_cast<ScoreLayer>(rng() % 3));
    const std::uint64_t n = rng() % 3000, chunk = 1 + rng() % 600;

    for (const AttentionMemory& a : backends) {
      const std::uint64_t expected = naive_scores(f, a, n, chunk);
      ASSERT_EQ(score_bytes(f, a, n, chunk), expected) << "seed " << seed;
      n_not_zero += expected > 0;
    }
  }
  EXPECT_GT(n_not_zero, 1000u);
}

TEST(FitScores, ReadConfigsWithTheirDefaults) {
  const auto config = json::parse(
      R"({"num_attention_heads":8,"hidden_size":512,"num_hidden_layers":4,"sliding_window":128,
          "layer_types":["sliding_attention","linear_attention","full_attention"]})");
  ASSERT_TRUE(config);

  const ScoreFacts f = score_facts_of(*config);

  EXPECT_EQ(f.n_heads, 8u);
  EXPECT_EQ(f.head_dim, 64u);
  EXPECT_EQ(f.global_head_dim, 64u);
  EXPECT_EQ(f.window, 128u);
  EXPECT_EQ(f.n_layers, 4u);
  EXPECT_EQ(f.layer_types,
            (std::vector{ScoreLayer::sliding, ScoreLayer::recurrent, ScoreLayer::full}));
}

TEST(FitScores, HostileConfigsGiveBoundedFacts) {
  const auto config = json::parse(
      R"({"num_attention_heads":-8,"hidden_size":"x","num_hidden_layers":9000000000,
          "sliding_window":null,"layer_types":[1,null,"?"]})");
  ASSERT_TRUE(config);

  const ScoreFacts f = score_facts_of(*config);

  EXPECT_EQ(f.n_heads, 0u);
  EXPECT_EQ(f.window, 0u);
  EXPECT_LE(f.n_layers, 65536u);
  EXPECT_EQ(f.layer_types, std::vector<ScoreLayer>(3, ScoreLayer::full));
}

}  // namespace
}  // namespace kvasir::fit
