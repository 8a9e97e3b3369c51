// Picking tokens on the GPU: the host's token of every row (SAMP-2, SAMP-12, EXE-25), and embedding
// tokens that the host has not read (EXE-10).
#include <gtest/gtest.h>

#include "backend/cuda/testing/host_values.h"
#include "base/thread_pool.h"
#include "ops/pick_testing.h"
#include "ops/weight_testing.h"

namespace kvasir::backend::cuda::testing {
namespace {

TEST(CudaPick, IsTheHostsTokenOfEveryRow) {
  KVASIR_NEEDS_CUDA();
  for (const Mode mode : {Mode::eager, Mode::recorded}) {
    for (const std::uint32_t vocab : {1u, 3u, 127u, 4096u, 4097u, 32000u, 128256u, 262147u}) {
      for (std::uint32_t seed = 0; seed < (mode == Mode::eager ? 6u : 1u); ++seed) {
        const auto c = ops::testing::draw_pick_case(vocab, 100 * seed + vocab);
        const FloatModeScope float_mode;
        std::vector<std::uint32_t> expected;
        for (std::size_t r = 0; r < c.rows.size(); ++r)
          expected.push_back(ops::pick_token({c.scores.data() + r * vocab, vocab}, c.rows[r]));

        EXPECT_EQ(ops::testing::pick_with(*make(mode), c), expected) << vocab << " seed " << seed;
      }
    }
  }
}

// Many draws of flat rows: whoever wins does so by its Gumbel number's last bits.
TEST(CudaPick, GumbelNumbersAreTheHosts) {
  KVASIR_NEEDS_CUDA();
  constexpr std::uint32_t kVocab = 50'000, kRows = 512;
  ops::testing::PickCase c{
      .vocab = kVocab, .scores = std::vector<float>(std::size_t{kRows} * kVocab), .rows = {}};
  for (std::uint32_t r = 0; r < kRows; ++r)
    c.rows.push_back({.seed = 99, .position = r, .scale = 1.0f, .kind = PickKind::drawn});
  std::vector<std::uint32_t> expected;
  for (std::uint32_t r = 0; r < kRows; ++r)
    expected.push_back(ops::pick_token({c.scores.data(), kVocab}, c.rows[r]));

  EXPECT_EQ(ops::testing::pick_with(*make(), c), expected);
}

TEST(CudaPick, TakesAWholeBatchOfALargeVocabulary) {
  KVASIR_NEEDS_CUDA();
  constexpr std::uint32_t kVocab = 128'256, kRows = 64;
  std::mt19937 rng(8);
  ops::testing::PickCase c{.vocab = kVocab,
                           .scores = random_floats(std::size_t{kRows} * kVocab, rng, 2.0f)};
  for (std::uint32_t r = 0; r < kRows; ++r)
    c.rows.push_back({.seed = r,
                      .position = 5,
                      .scale = 1.4f,
                      .kind = r < 32 ? PickKind::highest : PickKind::drawn});
  std::vector<std::uint32_t> expected;
  for (std::uint32_t r = 0; r < kRows; ++r)
    expected.push_back(
        ops::pick_token({c.scores.data() + std::size_t{r} * kVocab, kVocab}, c.rows[r]));

  EXPECT_EQ(ops::testing::pick_with(*make(), c), expected);
}

TEST(CudaEmbed, TakesTokensThatWerePicked) {
  KVASIR_NEEDS_CUDA();
  ops::Device& device = cuda_device();
  std::mt19937 rng(3);
  const ops::testing::StoredWeight table("bf16", 40, 64, rng);
  const auto packed = *device.pack(table.view(), {});
  const Array<std::uint32_t> picked(device, std::vector<std::uint32_t>{31, kNoToken, 5});
  const auto embed = [&](const std::vector<std::uint32_t>& tokens) {
    const Array<float> out(device, tokens.size() * 64);
    device.ops().embed(
        device, {.tokens = tokens,
                 .table = packed.get(),
                 .picked = picked.data(),
                 .out = mat_view(out.data(), static_cast<std::uint32_t>(tokens.size()), 64)});
    return out.get();
  };

  EXPECT_EQ(embed({7, picked_from(2), picked_from(0), picked_from(1)}), embed({7, 5, 31, 0}));
}

}  // namespace
}  // namespace kvasir::backend::cuda::testing
