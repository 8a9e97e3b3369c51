#include "sampling/detail/history.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace kvasir::sampling::detail {
namespace {

using Counts = std::map<TokenId, std::uint32_t>;

Counts counts_of(const History& h, std::size_t window) {
  Counts out;
  for (const auto& e : h.window(window)) out[e.token] = e.count;
  return out;
}

TEST(History, CountsOnlyTheLastTokensOfTheWindow) {
  History h;
  const auto w = h.add_window(10, 3, /*with_prompt=*/true);
  h.seed(std::vector<TokenId>{1, 2, 2, 3}, std::vector<TokenId>{2});

  EXPECT_EQ(counts_of(h, w), (Counts{{2, 2}, {3, 1}}));
}

TEST(History, WindowZeroIsTheWholeHistory) {
  History h;
  const auto w = h.add_window(10, 0, true);
  h.seed(std::vector<TokenId>{1, 2, 2, 3}, {});

  EXPECT_EQ(counts_of(h, w), (Counts{{1, 1}, {2, 2}, {3, 1}}));
}

TEST(History, LeavesThePromptOutWhenAsked) {  // C10
  History h;
  const auto w = h.add_window(10, 5, false);
  h.seed(std::vector<TokenId>{1, 2, 3}, std::vector<TokenId>{3, 4});

  EXPECT_EQ(counts_of(h, w), (Counts{{3, 1}, {4, 1}}));
}

TEST(History, IgnoresIdsOutsideTheVocabulary) {
  History h;
  const auto w = h.add_window(4, 0, true);
  h.seed(std::vector<TokenId>{1, 4, 0xFFFFFFFFu}, {});
  h.truncate(1);

  EXPECT_EQ(counts_of(h, w), (Counts{{1, 1}}));
}

TEST(History, SeedingAgainStartsAfresh) {
  History h;
  const auto w = h.add_window(10, 0, true);
  h.seed(std::vector<TokenId>{1, 2}, {});
  h.seed(std::vector<TokenId>{5}, std::vector<TokenId>{5});

  EXPECT_EQ(counts_of(h, w), (Counts{{5, 2}}));
}

TEST(History, RandomPushesAndRollbacksEqualARecount) {
  constexpr std::uint32_t kWindows[] = {0, 1, 4, 20};
  std::mt19937 rng(1);
  History h;
  for (std::uint32_t w : kWindows) h.add_window(8, w, true);
  for (std::uint32_t w : kWindows) h.add_window(8, w, false);
  const std::vector<TokenId> prompt{1, 1, 7, 3, 1};
  h.seed(prompt, {});
  std::vector<TokenId> all = prompt;

  for (int step = 0; step < 2000; ++step) {
    if (rng() % 4 == 0) {
      const std::size_t keep = prompt.size() + rng() % (all.size() - prompt.size() + 1);
      all.resize(keep);
      h.truncate(keep);
    } else {
      all.push_back(static_cast<TokenId>(rng() % 9));  // 8 is outside
      h.push(all.back());
    }
    for (std::size_t w = 0; w < 8; ++w) {
      const std::size_t from = w < 4 ? 0 : prompt.size();
      const std::size_t n = kWindows[w % 4];
      std::size_t first = n == 0 || all.size() - from < n ? from : all.size() - n;
      Counts expected;
      for (; first < all.size(); ++first) {
        if (all[first] < 8) ++expected[all[first]];
      }
      ASSERT_EQ(counts_of(h, w), expected) << "step " << step << " window " << w;
    }
  }
}

}  // namespace
}  // namespace kvasir::sampling::detail
