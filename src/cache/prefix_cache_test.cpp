#include "cache/prefix_cache.h"

#include <gtest/gtest.h>

#include "cache/detail/test_rows.h"

namespace kvasir::cache {
namespace {

const KvList kPaged{{1, 2, 0}};
const KvList kMixed{{1, 2, 16}, {1, 2, 0}};

struct HiddenState final : Attachment {
  std::size_t bytes() const noexcept override { return 1000; }
};

std::uint32_t hit_length(PrefixCache& cache, const Tokens& prompt, std::string_view ns = "") {
  const auto hit = cache.take(prompt, ns);
  return hit ? hit->length : 0;
}

TEST(PrefixCache, TheSamePromptAgainLeavesOneTokenToFeed_C18) {
  for (const std::uint32_t n : {2u, 7u, 8u, 9u, 16u, 64u}) {  // block size multiples too
    TestRows rows(kPaged, 8, 1 << 18);
    PrefixCache cache(rows.store(), {});
    const Tokens prompt = counting(n);
    ASSERT_TRUE(cache.put(prompt, rows.state_of(prompt), ""));

    for (int again = 0; again < 3; ++again) {
      auto hit = cache.take(prompt, "");
      ASSERT_TRUE(hit);
      EXPECT_EQ(hit->length, n - 1);
      EXPECT_EQ(hit->state.length(), n - 1);
      const KvRowId row = rows.store().create_row();
      rows.store().adopt(row, std::move(hit->state));
      EXPECT_TRUE(rows.feed(row, prompt, n));
      EXPECT_TRUE(rows.holds(row, prompt));
      rows.store().free_row(row);
    }
    EXPECT_EQ(cache.stats().hit_tokens, 3u * (n - 1));
  }
}

// What is found again, in RAM or from exported planes in blocks of another size (what a file is),
// is what a fresh prefill leaves, at every length, on a block's border or not.
TEST(PrefixCache, AStateFoundAgainIsThatOfAFreshPrefillAtEveryLength_C20) {
  constexpr std::uint32_t kBlock = 8;
  for (const KvList& list : {kPaged, kMixed}) {
    for (std::uint32_t n = 1; n <= 3 * kBlock + 1; ++n) {
      TestRows rows(list, kBlock, 1 << 18), others(list, 2 * kBlock, 1 << 18);
      PrefixCache cache(rows.store(), {});
      const Tokens prompt = counting(n), longer = joined(prompt, {900, 901});
      ASSERT_TRUE(cache.put(prompt, rows.state_of(prompt, 3), ""));

      auto hit = cache.take(longer, "");
      ASSERT_TRUE(hit);
      ASSERT_EQ(hit->length, n);
      const auto planes = rows.store().planes(hit->state);
      ASSERT_TRUE(planes);
      auto restored = others.store().restore(*planes);
      ASSERT_TRUE(restored) << restored.error().what;

      for (auto [in, state] : {std::pair{&rows, &hit->state}, {&others, &*restored}}) {
        const KvRowId row = in->store().create_row();
        in->store().adopt(row, std::move(*state));
        EXPECT_TRUE(in->holds(row, prompt)) << n;
        EXPECT_TRUE(in->feed(row, longer, n + 2));
        EXPECT_TRUE(in->holds(row, longer)) << n;
      }
    }
  }
}

TEST(PrefixCache, AnEarlierPromptWithItsOwnOutputServesTheNextTurn_C18) {
  TestRows rows(kPaged, 8, 1 << 18);
  PrefixCache cache(rows.store(), {});
  const Tokens turn = counting(40);
  ASSERT_TRUE(cache.put(turn, rows.state_of(turn), ""));

  EXPECT_EQ(hit_length(cache, joined(turn, {900, 901})), 40u);
  EXPECT_EQ(hit_length(cache, joined(first(turn, 29), {900, 901})),
            29u);  // CACHE-4: not a block border
  EXPECT_EQ(hit_length(cache, {900, 901}), 0u);
  EXPECT_EQ(hit_length(cache, {1}), 0u);
  EXPECT_EQ(hit_length(cache, {}), 0u);
  EXPECT_EQ(cache.stats().hits, 2u);
  EXPECT_EQ(cache.stats().misses, 3u);
}

TEST(PrefixCache, AHitIsATrimmedClonePinnedByItsGuardAndTheDonorStays_CACHE3) {
  TestRows rows(kPaged, 8, 1 << 18);
  PrefixCache cache(rows.store(), {});
  const Tokens prompt = counting(30), other = joined(first(prompt, 21), {900, 901});
  ASSERT_TRUE(cache.put(prompt, rows.state_of(prompt), ""));
  rows.copied_bytes() = 0;

  auto hit = cache.take(other, "");
  ASSERT_TRUE(hit);
  EXPECT_EQ(hit->length, 21u);
  EXPECT_EQ(hit->state.length(), 21u);
  const KvRowId row = rows.store().create_row();
  rows.store().adopt(row, std::move(hit->state));
  EXPECT_EQ(rows.store().used_blocks(0), 4u) << "references only";
  EXPECT_EQ(rows.copied_bytes(), 0u);
  EXPECT_EQ(cache.reclaimable(0), 0u) << "pinned";

  ASSERT_TRUE(rows.feed(row, other, 23));
  EXPECT_EQ(rows.copied_bytes(), 5u * 2 * (2 * 2)) << "the 5 slots of its tail, K and V";
  EXPECT_TRUE(rows.holds(row, other));
  hit->retain.release();
  EXPECT_EQ(cache.reclaimable(0), 2u) << "two blocks are the row's as well";

  auto whole = cache.take(joined(prompt, {1}), "");
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->length, 30u);
  const KvRowId again = rows.store().create_row();
  rows.store().adopt(again, std::move(whole->state));
  EXPECT_TRUE(rows.holds(again, prompt));
}

TEST(PrefixCache, WindowedTurnsReuseTheBoundarySnapshot_C19) {
  TestRows rows(kMixed, 8, 1 << 18);
  PrefixCache cache(rows.store(), {});
  const Tokens turn1 = counting(200);
  const Tokens generated = joined(turn1, counting(30, 5000));
  const KvRowId row = rows.store().create_row();
  ASSERT_TRUE(rows.feed(row, turn1, 195));  // template-stable boundary (CACHE-13)
  ASSERT_TRUE(cache.put(first(turn1, 195), rows.store().capture(row), ""));
  ASSERT_TRUE(rows.feed(row, generated, 230));
  ASSERT_TRUE(cache.put(generated, rows.store().detach_row(row), ""));
  EXPECT_EQ(cache.stats().entries, 2u);  // CACHE-6: the end is not resumable at the boundary

  const Tokens turn2 =
      joined(first(turn1, 197), counting(20, 9000));  // re-encoded differently (CACHE-11)
  auto hit = cache.take(turn2, "");
  ASSERT_TRUE(hit);
  EXPECT_EQ(hit->length, 195u);
  const KvRowId second = rows.store().create_row();
  rows.store().adopt(second, std::move(hit->state));
  EXPECT_TRUE(rows.feed(second, turn2, static_cast<std::uint32_t>(turn2.size())));
  EXPECT_TRUE(rows.holds(second, turn2));

  EXPECT_EQ(hit_length(cache, joined(generated, {1})), 230u);
  EXPECT_EQ(hit_length(cache, joined(first(generated, 229), {1})),
            229u);  // its window still reaches back
}

TEST(PrefixCache, WindowedStateThatLostTheWindowIsNoHit_CACHE2) {
  TestRows rows(kMixed, 8, 1 << 18);
  PrefixCache cache(rows.store(), {});
  const Tokens long_one = counting(200);
  ASSERT_TRUE(cache.put(long_one, rows.state_of(long_one), ""));

  EXPECT_EQ(hit_length(cache, joined(first(long_one, 100), {7, 7})), 0u);
  EXPECT_EQ(cache.stats().misses, 1u);
}

TEST(PrefixCache, NamespacesNeverShare_KV42) {
  TestRows rows(kPaged, 8, 1 << 18);
  PrefixCache cache(rows.store(), {});
  const Tokens prompt = counting(20);
  ASSERT_TRUE(cache.put(prompt, rows.state_of(prompt), "a"));

  EXPECT_EQ(hit_length(cache, prompt, "b"), 0u);
  EXPECT_EQ(hit_length(cache, prompt, "a"), 19u);
}

TEST(PrefixCache, PutReplacesEqualTokensAndSupersedesServableAncestors_CACHE6) {
  TestRows rows(kPaged, 8, 1 << 18);
  PrefixCache cache(rows.store(), {});
  const Tokens tokens = counting(50);
  ASSERT_TRUE(cache.put(first(tokens, 10), rows.state_of(first(tokens, 10)), ""));
  ASSERT_TRUE(cache.put(first(tokens, 10), rows.state_of(first(tokens, 10)), ""));
  EXPECT_EQ(cache.stats().entries, 1u);

  ASSERT_TRUE(cache.put(first(tokens, 30), rows.state_of(first(tokens, 30)), ""));
  ASSERT_TRUE(cache.put(joined(first(tokens, 20), {999}),
                        rows.state_of(joined(first(tokens, 20), {999})), ""));
  EXPECT_EQ(cache.stats().entries, 2u);
  EXPECT_EQ(cache.check_invariants(), "");
  EXPECT_EQ(hit_length(cache, joined(first(tokens, 10), {5})), 10u);

  ASSERT_TRUE(cache.put(first(tokens, 20), rows.state_of(first(tokens, 20)),
                        ""));  // shorter than what is there: kept
  EXPECT_EQ(cache.stats().entries, 3u);
  EXPECT_EQ(cache.check_invariants(), "");
}

TEST(PrefixCache, AttachmentsServeTheirFullLengthOnly_CACHE2) {
  TestRows rows(kPaged, 8, 1 << 18);
  PrefixCache cache(rows.store(), {});
  const Tokens tokens = counting(20);
  ASSERT_TRUE(cache.put(tokens, rows.state_of(tokens), "", std::make_shared<HiddenState>()));
  EXPECT_EQ(cache.stats().bytes, 3 * rows.store().block_bytes(0) + 1000);

  EXPECT_EQ(hit_length(cache, tokens), 0u);  // p = 19 is not its end
  auto hit = cache.take(joined(tokens, {1}), "");
  ASSERT_TRUE(hit);
  EXPECT_EQ(hit->length, 20u);
  EXPECT_NE(hit->attachment, nullptr);

  ASSERT_TRUE(cache.put(joined(tokens, {1, 2}), rows.state_of(joined(tokens, {1, 2})), ""));
  EXPECT_EQ(cache.stats().entries, 2u);  // the attachment would be lost with its entry
}

TEST(PrefixCache, SharedBlocksCountOnceAndTheCapEvictsTheLeastRecentlyUsed_CACHE1_CACHE21) {
  TestRows rows(kPaged, 8, 1 << 18);
  const std::size_t block = rows.store().block_bytes(0);
  PrefixCache cache(rows.store(), {.max_bytes = 6 * block});
  const Tokens stem = counting(32);  // 4 blocks
  const KvRowId row = rows.store().create_row();
  ASSERT_TRUE(rows.feed(row, stem, 32));
  const KvRowId other = rows.store().fork_row(row);
  const Tokens a = joined(stem, {100}), b = joined(stem, {200}), c = counting(8, 700);
  ASSERT_TRUE(rows.feed(row, a, 33));
  ASSERT_TRUE(rows.feed(other, b, 33));
  ASSERT_TRUE(cache.put(a, rows.store().detach_row(row), ""));
  ASSERT_TRUE(cache.put(b, rows.store().detach_row(other), ""));
  EXPECT_EQ(cache.stats().bytes, 6 * block);
  EXPECT_EQ(hit_length(cache, joined(a, {1})), 33u);  // a is now the more recent

  ASSERT_TRUE(cache.put(c, rows.state_of(c), ""));

  EXPECT_EQ(cache.stats().entries, 2u);
  EXPECT_EQ(cache.usable_length(joined(a, {1}), ""), 33u);
  EXPECT_EQ(cache.usable_length(joined(b, {1}), ""), 32u);  // through a
  EXPECT_EQ(cache.stats().bytes, 6 * block);
  EXPECT_EQ(rows.store().used_blocks(0), 6u);
}

TEST(PrefixCache, TooLargeOrOffIsDroppedWithoutAnError_CACHE6_CACHE9) {
  TestRows rows(kPaged, 8, 1 << 18);
  const Tokens small = counting(8), large = counting(100, 500);
  {
    PrefixCache cache(rows.store(), {.max_bytes = 5 * rows.store().block_bytes(0)});
    ASSERT_TRUE(cache.put(small, rows.state_of(small), ""));
    EXPECT_TRUE(cache.put(large, rows.state_of(large), ""));
    EXPECT_EQ(cache.stats().entries, 1u);  // and the others stay
  }
  PrefixCache off(rows.store(), {.max_bytes = 0});
  kv::KvState state = rows.state_of(small);
  EXPECT_TRUE(off.put(small, std::move(state), ""));
  EXPECT_FALSE(state);
  EXPECT_FALSE(off.take(small, ""));
  EXPECT_EQ(off.stats().misses, 0u);
  EXPECT_EQ(rows.store().used_blocks(0), 0u);
}

TEST(PrefixCache, OnErrorTheStateStaysWithTheCaller_EXE54) {
  TestRows rows(kPaged, 8, 1 << 18);
  PrefixCache cache(rows.store(), {});
  kv::KvState state = rows.state_of(counting(8));

  EXPECT_FALSE(cache.put(counting(9), std::move(state), ""));

  ASSERT_TRUE(state);
  EXPECT_EQ(state.length(), 8u);
  EXPECT_FALSE(cache.put({}, kv::KvState(), ""));
}

TEST(PrefixCache, PinnedEntriesAreNoVictims_CACHE7) {
  TestRows rows(kPaged, 8, 1 << 18);
  PrefixCache cache(rows.store(), {.max_entries = 2});
  const Tokens a = counting(8, 100), b = counting(8, 200), c = counting(8, 300);
  ASSERT_TRUE(cache.put(a, rows.state_of(a), ""));
  auto pin = cache.take(a, "");
  ASSERT_TRUE(pin);
  ASSERT_TRUE(cache.put(b, rows.state_of(b), ""));
  EXPECT_EQ(hit_length(cache, b), 7u);  // a is the least recently used

  ASSERT_TRUE(cache.put(c, rows.state_of(c), ""));
  EXPECT_EQ(cache.usable_length(a, ""), 7u);
  EXPECT_EQ(cache.usable_length(b, ""), 0u);

  pin->retain.release();
  ASSERT_TRUE(cache.put(b, rows.state_of(b), ""));
  EXPECT_EQ(cache.usable_length(a, ""), 0u);
  EXPECT_EQ(pin->state.length(), 7u);  // the hit's blocks outlive the entry
}

TEST(PrefixCache, ReserveReclaimsFromTheCacheBeforeItFails_CACHE9) {
  TestRows rows(kPaged, 8, 10 * 8 * 2 * 2 * 2);  // 10 blocks
  PrefixCache cache(rows.store(), {});
  const Tokens a = counting(24, 100), b = counting(24, 200), c = counting(16, 300);
  ASSERT_TRUE(cache.put(a, rows.state_of(a), ""));
  ASSERT_TRUE(cache.put(b, rows.state_of(b), ""));
  ASSERT_TRUE(cache.put(c, rows.state_of(c), ""));
  auto pin = cache.take(joined(a, {1}), "");
  EXPECT_EQ(rows.store().free_blocks(0), 2u);
  EXPECT_EQ(rows.store().available_blocks(0), 7u);

  const KvRowId row = rows.store().create_row();
  EXPECT_TRUE(
      rows.feed(row, counting(40, 900), 40, 40));  // 5 blocks: b goes, a is pinned, c may stay
  EXPECT_EQ(cache.usable_length(b, ""), 0u);
  EXPECT_EQ(cache.usable_length(c, ""), 15u);

  const KvRowId more = rows.store().create_row();
  EXPECT_FALSE(rows.feed(more, counting(40, 900), 40, 40));
  EXPECT_EQ(cache.usable_length(c, ""), 15u);  // forgetting it would not have been enough
  EXPECT_EQ(cache.check_invariants(), "");
  EXPECT_EQ(check_invariants(rows.store().snapshot()), "");
}

TEST(PrefixCache, ReclaimSparesEntriesWhoseBlocksRowsShare) {
  TestRows rows(kPaged, 8, 6 * 8 * 2 * 2 * 2);  // 6 blocks
  PrefixCache cache(rows.store(), {});
  const Tokens shared = counting(24, 100), alone = counting(8, 200);
  const KvRowId row = rows.store().create_row();
  ASSERT_TRUE(rows.feed(row, shared, 24));
  ASSERT_TRUE(cache.put(shared, rows.store().capture(row), ""));
  ASSERT_TRUE(cache.put(alone, rows.state_of(alone), ""));

  const KvRowId other = rows.store().create_row();
  EXPECT_TRUE(rows.feed(other, counting(24, 900), 24, 24));

  EXPECT_EQ(cache.usable_length(shared, ""), 23u);
  EXPECT_EQ(cache.usable_length(alone, ""), 0u);
}

TEST(PrefixCache, ClearGivesEveryBlockBackAndGuardsMayOutliveTheCache) {
  TestRows rows(kMixed, 8, 1 << 18);
  Retain retain;
  {
    PrefixCache cache(rows.store(), {});
    const Tokens prompt = counting(20);
    ASSERT_TRUE(cache.put(prompt, rows.state_of(prompt), ""));
    retain = std::move(cache.take(prompt, "")->retain);
    cache.clear();
    EXPECT_EQ(cache.stats().entries, 0u);
    EXPECT_EQ(cache.stats().bytes, 0u);
    EXPECT_EQ(cache.check_invariants(), "");
    EXPECT_EQ(rows.store().used_blocks(0), 0u);
  }
  retain.release();
}

TEST(PrefixCache, AChainOfManyNestedPrefixesIsTornDownWithoutRecursion) {
  TestRows rows({}, 8, 0);
  PrefixCache cache(rows.store(), {});
  const Tokens all = counting(3000);
  const auto attachment = std::make_shared<HiddenState>();  // keeps ancestors from being superseded
  for (std::uint32_t n = 1; n <= all.size(); n += 3)
    ASSERT_TRUE(cache.put(first(all, n), rows.state_of(first(all, n)), "", attachment));
  EXPECT_EQ(cache.check_invariants(), "");
}

TEST(PrefixCache, PeekingCountsNothing_CACHE_23) {
  TestRows rows(kPaged, 8, 1 << 18);
  PrefixCache cache(rows.store(), {});
  const Tokens prompt = counting(20), longer = joined(prompt, {900});
  ASSERT_TRUE(cache.put(prompt, rows.state_of(prompt), ""));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(cache.peek(longer, "")->length, 20u);
  EXPECT_FALSE(cache.peek(counting(9, 500), ""));
  EXPECT_EQ(cache.stats().hits + cache.stats().misses, 0u);
  cache.count(longer, "");
  cache.count(counting(9, 500), "");
  EXPECT_EQ(cache.stats().hits, 1u);
  EXPECT_EQ(cache.stats().hit_tokens, 20u);
  EXPECT_EQ(cache.stats().misses, 1u);
}

// A waypoint that stands for a prefix somebody asked for goes no sooner than that would.
TEST(PrefixCache, AWaypointInheritsThePrefixItSupersedes_CACHE_15) {
  TestRows rows({{1, 2, 16}, {1, 2, 0}}, 8, 1 << 18);
  PrefixCacheOptions options;
  options.max_entries = 2;
  PrefixCache cache(rows.store(), options);
  const Tokens prefix = counting(12), longer = counting(16), again = joined(prefix, {77});
  ASSERT_TRUE(cache.put(prefix, rows.state_of(prefix), ""));
  ASSERT_TRUE(cache.put(longer, rows.state_of(longer), "", nullptr, EntryKind::waypoint));
  const Tokens other = counting(40, 500), third = counting(30, 900);
  ASSERT_TRUE(cache.put(other, rows.state_of(other), ""));
  EXPECT_EQ(hit_length(cache, again), 12u);  // the one used last
  ASSERT_TRUE(cache.put(third, rows.state_of(third), ""));
  EXPECT_EQ(hit_length(cache, again), 12u);
}

}  // namespace
}  // namespace kvasir::cache
