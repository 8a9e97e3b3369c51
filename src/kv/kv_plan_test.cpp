// The memory model's arithmetic is the store's (KV-60, FIT-9).
#include "kv/kv_plan.h"

#include <gtest/gtest.h>

#include "kv/testing.h"

namespace kvasir::kv {
namespace {

constexpr std::uint32_t kBlock = 8, kSplit = 256, kChunk = 32;

const KvList kUniform(3, {.n_kv_heads = 2, .head_dim = 64, .window = 0});
const KvList kMixed{{.n_kv_heads = 2, .head_dim = 64, .window = 0},
                    {.n_kv_heads = 2, .head_dim = 64, .window = 40},
                    {.n_kv_heads = 1, .head_dim = 128, .window = 0}};

KvScheme scheme_of(KvSchemeKind kind, bool is_eager = false) {
  return {.kind = kind, .bits = 4, .group = 32, .start = 0, .is_eager = is_eager, .first_span = 64};
}

KvPlan plan_of(const KvList& list, const KvScheme& scheme) {
  auto plan = KvPlan::make(list, scheme, kBlock, kSplit, kChunk);
  EXPECT_TRUE(plan);
  return *std::move(plan);
}

bool store_holds(const KvList& list,
                 const KvScheme& scheme,
                 std::uint64_t budget,
                 std::uint64_t n) {
  TestDevice device;
  const auto store = KvStore::make(device, list,
                                   {.scheme = scheme,
                                    .block_tokens = kBlock,
                                    .budget_bytes = budget,
                                    .split_tokens = kSplit,
                                    .split_chunk = kChunk});
  return store && (*store)->fits(n, kChunk);
}

TEST(KvPlan, BudgetIsTheSmallestWhoseStoreHoldsTheRow) {
  using enum KvSchemeKind;
  for (const KvList& list : {kUniform, kMixed}) {
    for (const KvScheme& scheme : {scheme_of(exact), scheme_of(affine_uniform), scheme_of(turbo),
                                   scheme_of(affine_uniform, /*is_eager=*/true)}) {
      const KvPlan plan = plan_of(list, scheme);
      std::uint64_t before = 0;
      for (const std::uint64_t n : {1, 8, 9, 63, 64, 65, 200, 1000}) {
        const std::uint64_t budget = plan.budget_for(n);

        EXPECT_TRUE(store_holds(list, scheme, budget, n)) << scheme.cache_key() << " " << n;
        EXPECT_FALSE(store_holds(list, scheme, budget - 1, n)) << scheme.cache_key() << " " << n;
        EXPECT_GE(budget, before);
        before = budget;
      }
    }
  }
}

TEST(KvPlan, OnePoolNeedsWhatTheRowProjects) {
  TestDevice device;
  const auto store = KvStore::make(device, kUniform,
                                   {.scheme = {}, .block_tokens = kBlock, .budget_bytes = 1 << 22});
  ASSERT_TRUE(store);

  EXPECT_EQ(plan_of(kUniform, {}).budget_for(100), (*store)->projected_bytes(100, kChunk));
  EXPECT_EQ(plan_of(kUniform, {}).bytes_per_token(), (*store)->bytes_per_token());
}

TEST(KvPlan, BooksAreACountAndAPlaceABlock) {
  const std::uint64_t block = 3 * 2 * 2 * 64 * 2 * kBlock;

  EXPECT_EQ(plan_of(kUniform, {}).books_bytes(10 * block), 80u);
}

}  // namespace
}  // namespace kvasir::kv
