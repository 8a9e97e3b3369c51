#include "kv/kv_store.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kv/testing.h"

namespace kvasir::kv {
namespace {

const KvLayerSpec kFull{.n_kv_heads = 2, .head_dim = 4, .window = 0};
KvLayerSpec windowed(std::uint32_t window) {
  return {.n_kv_heads = 2, .head_dim = 4, .window = window};
}

std::unique_ptr<KvStore> make_store(TestDevice& device,
                                    const KvList& list,
                                    std::uint32_t block_tokens = 8,
                                    std::size_t budget = 1 << 18) {
  auto made = KvStore::make(device, list, {.block_tokens = block_tokens, .budget_bytes = budget});
  EXPECT_TRUE(made) << made.error().what;
  return *std::move(made);
}

// Feeds tokens from the row's length on: token at position p is p + seed.
void feed(KvStore& store, KvRowId row, std::uint32_t n, std::uint32_t seed = 0) {
  const RowSpan span{row, n, 0};
  auto step = store.reserve({&span, 1});
  ASSERT_TRUE(step) << step.error().what;
  const std::uint32_t length = store.length(row);
  for (std::uint32_t p = length; p < length + n; ++p)
    mark_position(step->views(), 0, p, p + seed, Marks::write);
  std::move(*step).commit();
}

bool holds(KvStore& store, KvRowId row, std::uint32_t end, std::uint32_t seed = 0) {
  const RowSpan span{row, 1, 0};
  auto step = store.reserve({&span, 1});
  if (!step) return false;
  bool same = true;
  for (std::uint32_t p = 0; p < end; ++p)
    same = same && mark_position(step->views(), 0, p, p + seed, Marks::check);
  return same;
}

TEST(KvStore, RefusesWhatItCannotStore) {
  TestDevice device;
  const auto error = [&](const KvList& list, KvStoreOptions options) {
    return KvStore::make(device, list, options).error();
  };

  EXPECT_EQ(error({kFull}, {.block_tokens = 24, .budget_bytes = 1 << 20}).what,
            "kv block size must be a power of two from 8 to 512");
  EXPECT_EQ(error({kFull}, {.budget_bytes = 100}).code, Errc::capacity);
  EXPECT_EQ(error({{0, 4, 0}}, {.budget_bytes = 1 << 20}).code, Errc::invalid_argument);
  EXPECT_EQ(error({{~0u, ~0u, 0}}, {.budget_bytes = 1 << 20}).code, Errc::invalid_argument);
  device.max_bytes = 1000;
  EXPECT_EQ(error({kFull}, {.budget_bytes = 1 << 20}).code, Errc::capacity);
}

TEST(KvStore, AModelWithoutStateNeedsNoMemory) {
  TestDevice device;
  auto store = make_store(device, {}, 8, 0);
  const KvRowId row = store->create_row();

  feed(*store, row, 5);

  EXPECT_EQ(store->length(row), 5u);
  EXPECT_EQ(store->bytes_per_token(), 0u);
  store->free_row(row);
}

TEST(KvStore, SignaturesNameLayoutWindowAndType_KV36) {
  TestDevice device;
  auto store = make_store(device, {kFull, windowed(16)});

  EXPECT_EQ(store->signature(0, 1), "paged:bf16:bf16");
  EXPECT_EQ(store->signature(1, 1), "windowed(16):bf16:bf16");
}

TEST(KvStore, LayersOfOneWidthShareOnePool) {
  TestDevice device;
  // 2 full and 4 windowed layers: blocks of 2 layers, 1 full and 2 windowed groups.
  auto same =
      make_store(device, {windowed(9), windowed(9), kFull, windowed(9), windowed(9), kFull});
  auto differing = make_store(device, {kFull, {1, 16, 9}});

  EXPECT_EQ(same->n_pools(), 1u);
  EXPECT_EQ(same->block_bytes(0), 2u * 2 * 8 * 8 * 2);
  EXPECT_EQ(same->projected_blocks(0, 8, 8), 3u);
  EXPECT_EQ(differing->n_pools(), 2u);
  EXPECT_LE(differing->total_bytes(), std::size_t{1} << 18);
}

TEST(KvStore, BytesFollowTheFormula_KV60) {
  TestDevice device;
  auto store = make_store(device, {kFull, windowed(16)}, 8);

  EXPECT_EQ(store->bytes_per_token(), 2u * (2 * 8 * 2));
  const std::size_t block = 2 * 8 * 8 * 2;  // one layer's block
  EXPECT_EQ(store->projected_bytes(1, 32), 2 * block);
  EXPECT_EQ(store->projected_bytes(8, 32), 2 * block);
  EXPECT_EQ(store->projected_bytes(9, 32), 4 * block);
  EXPECT_EQ(store->projected_bytes(8000, 32), (1000 + (16 + 32) / 8 + 1) * block);
  EXPECT_TRUE(store->fits(100, 32));
  EXPECT_FALSE(store->fits(1 << 20, 32));
}

TEST(KvStore, FreeBlocksAreTakenLowestFirstThenLastFreedFirst_KV62) {
  TestDevice device;
  auto store = make_store(device, {kFull});
  const KvRowId a = store->create_row(), b = store->create_row();

  feed(*store, a, 16);
  feed(*store, b, 8);
  store->free_row(a);
  const KvRowId c = store->create_row();
  feed(*store, c, 8);

  const KvSnapshot snapshot = store->snapshot();
  EXPECT_EQ(snapshot.rows[0].state.tables[0].blocks, (std::vector{BlockId{2}}));
  EXPECT_EQ(snapshot.rows[1].state.tables[0].blocks, (std::vector{BlockId{0}}));
  EXPECT_EQ(snapshot.pools[0].free.back(), BlockId{1});
  store->free_row(b);
  store->free_row(c);
}

TEST(KvStore, ReserveIsAllOrNothingAndRunningOutIsAnError_KV62) {
  TestDevice device;
  auto store = make_store(device, {kFull}, 8, 2 * 8 * 8 * 2 * 3);  // 3 blocks
  const KvRowId a = store->create_row(), b = store->create_row();
  feed(*store, a, 8);
  const KvSnapshot before = store->snapshot();

  const RowSpan spans[] = {{a, 8, 0}, {b, 9, 0}};
  const auto step = store->reserve(spans);

  ASSERT_FALSE(step);
  EXPECT_EQ(step.error().code, Errc::capacity);
  EXPECT_EQ(step.error().what, "kv blocks");
  EXPECT_EQ(store->snapshot(), before);
  EXPECT_FALSE(store->can_reserve(spans));
  EXPECT_TRUE(store->can_reserve({spans, 1}));
}

TEST(KvStore, BadSpansAreRefusedAndLeaveNothingBehind) {
  TestDevice device;
  auto store = make_store(device, {kFull});
  const KvRowId a = store->create_row();
  const KvSnapshot before = store->snapshot();

  const RowSpan twice[] = {{a, 1, 0}, {a, 1, 0}};
  const RowSpan empty[] = {{a, 0, 0}};
  const RowSpan drafts[] = {{a, 3, 3}};
  const RowSpan unknown[] = {{a, 1, 0}, {KvRowId{77}, 1, 0}};
  const RowSpan beyond[] = {{a, ~0u, 0}, {a, 1, 0}};
  EXPECT_FALSE(store->reserve(twice));
  EXPECT_FALSE(store->reserve(empty));
  EXPECT_FALSE(store->reserve(drafts));
  EXPECT_FALSE(store->reserve(unknown));
  EXPECT_FALSE(store->reserve(beyond));

  EXPECT_EQ(store->snapshot(), before);
}

TEST(KvStep, DestructorRestoresAnEqualSnapshot) {
  TestDevice device;
  auto store = make_store(device, {kFull, windowed(5)});
  const KvRowId a = store->create_row();
  feed(*store, a, 13);
  const KvRowId b = store->fork_row(a);  // so that a step must copy the tail
  const KvSnapshot before = store->snapshot();

  {
    const RowSpan spans[] = {{b, 30, 4}, {a, 1, 0}};
    auto step = store->reserve(spans);
    ASSERT_TRUE(step);
    EXPECT_EQ(check_invariants(store->snapshot()), "");
    EXPECT_NE(store->snapshot(), before);
  }

  EXPECT_EQ(store->snapshot(), before);
  EXPECT_TRUE(holds(*store, a, 13));
}

TEST(KvStep, ViewsNameRowsInSpanOrder) {
  TestDevice device;
  auto store = make_store(device, {windowed(5), kFull});
  const KvRowId a = store->create_row(), b = store->create_row();
  feed(*store, a, 21);

  const RowSpan spans[] = {{b, 3, 0}, {a, 2, 0}};
  auto step = store->reserve(spans);
  ASSERT_TRUE(step);
  const auto views = step->views().attention;

  ASSERT_EQ(views.size(), 2u);
  EXPECT_EQ(views[0].window, 5u);
  EXPECT_EQ(views[1].window, 0u);
  EXPECT_EQ(views[0].rows[0].length, 0u);
  EXPECT_EQ(views[0].rows[1].length, 21u);
  EXPECT_EQ(views[0].rows[1].first_token, 3u);
  EXPECT_EQ(views[0].rows[1].n_new, 2u);
  EXPECT_EQ(views[0].rows[1].first_position, 16u);  // 21 − 5 + 1 = 17, in block 2
  EXPECT_EQ(views[1].rows[1].first_position, 0u);
}

TEST(KvStep, BlocksBehindAWindowAreReleasedOnlyAfterCommit_KV38) {
  TestDevice device;
  auto store = make_store(device, {windowed(8)});
  const KvRowId a = store->create_row();
  feed(*store, a, 14);
  EXPECT_EQ(store->used_blocks(0), 2u);  // 14 − 8 + 1 = 7: block 0 is still read

  const RowSpan span{a, 40, 39};
  auto step = store->reserve({&span, 1});
  ASSERT_TRUE(step);
  EXPECT_EQ(store->used_blocks(0), 7u);
  const std::uint32_t keep[] = {1};
  std::move(*step).commit(keep);  // 15 tokens: positions from 8 on are needed

  EXPECT_EQ(store->used_blocks(0), 1u);
  EXPECT_FALSE(store->resumable_at(a, 14));
  EXPECT_TRUE(store->resumable_at(a, 15));
  EXPECT_TRUE(holds(*store, a, 14));
}

TEST(KvStep, AWindowOfOneCanRejectItsOnlyToken_KV53) {
  TestDevice device;
  auto store = make_store(device, {kFull, windowed(4)});
  const KvRowId a = store->create_row();
  feed(*store, a, 8);
  const KvSnapshot before = store->snapshot();

  const RowSpan span{a, 1, 0};
  auto step = store->reserve({&span, 1});
  ASSERT_TRUE(step);
  const std::uint32_t keep[] = {0};
  std::move(*step).commit(keep);

  EXPECT_EQ(store->snapshot(), before);
}

TEST(KvStep, ADiscardedRowIsAsBeforeAndCanBeFreed_KV55) {
  TestDevice device;
  auto store = make_store(device, {kFull});
  const KvRowId a = store->create_row(), b = store->create_row();
  feed(*store, a, 7);

  const RowSpan spans[] = {{a, 9, 0}, {b, 9, 0}};
  auto step = store->reserve(spans);
  ASSERT_TRUE(step);
  step->discard(0);
  step->discard(0);
  EXPECT_EQ(store->length(a), 7u);
  store->free_row(a);
  std::move(*step).commit();

  EXPECT_EQ(store->length(b), 9u);
  EXPECT_EQ(store->used_blocks(0), 2u);
  EXPECT_EQ(check_invariants(store->snapshot()), "");
}

TEST(KvStore, ASharedTailBlockIsCopiedBeforeItIsWrittenAndOnlyItsCommittedSlots_KV37) {
  TestDevice device;
  auto store = make_store(device, {kFull});
  const KvRowId a = store->create_row();
  feed(*store, a, 11);
  const KvRowId b = store->fork_row(a);
  device.copied_bytes = 0;

  feed(*store, b, 4, 1000);

  EXPECT_EQ(device.copied_bytes, 3u * 2 * (8 * 2));  // 3 slots, K and V, 8 elements of bf16
  EXPECT_TRUE(holds(*store, a, 11));
  EXPECT_TRUE(holds(*store, b, 11));
  device.copied_bytes = 0;
  feed(*store, b, 4, 1000);
  EXPECT_EQ(device.copied_bytes, 0u);
  EXPECT_EQ(store->used_blocks(0), 4u);
}

TEST(KvStore, AFullBlockIsSharedWithoutACopy) {
  TestDevice device;
  auto store = make_store(device, {kFull});
  const KvRowId a = store->create_row();
  feed(*store, a, 16);
  const KvRowId b = store->fork_row(a);

  device.copied_bytes = 0;
  feed(*store, b, 1);

  EXPECT_EQ(device.copied_bytes, 0u);
  EXPECT_EQ(store->used_blocks(0), 3u);
}

TEST(KvState, ServesPrefixesAndDropsTheirTails) {
  TestDevice device;
  auto store = make_store(device, {kFull});
  const KvRowId a = store->create_row();
  feed(*store, a, 30);

  KvState state = store->capture(a);
  store->free_row(a);
  KvState prefix = state.clone_prefix(17);
  EXPECT_EQ(state.bytes(), 4 * store->block_bytes(0));
  EXPECT_EQ(prefix.bytes(), 3 * store->block_bytes(0));
  EXPECT_TRUE(state.trim_to(8));
  EXPECT_EQ(store->used_blocks(0), 3u);
  EXPECT_FALSE(state.trim_to(9));

  const KvRowId b = store->create_row();
  store->adopt(b, std::move(prefix));
  EXPECT_EQ(store->length(b), 17u);
  EXPECT_TRUE(holds(*store, b, 17));
  state = KvState();
  EXPECT_EQ(store->used_blocks(0), 3u);
}

TEST(KvState, AWindowedStateIsResumableWhereItsWindowIsHeld_KV38) {
  TestDevice device;
  auto store = make_store(device, {kFull, windowed(16)});
  const KvRowId a = store->create_row();
  feed(*store, a, 20);
  const KvState early = store->capture(a);
  feed(*store, a, 30);  // 50: positions from 35 on are needed, 32 on held
  const KvState late = store->capture(a);

  EXPECT_TRUE(early.resumable_at(1));
  EXPECT_FALSE(early.resumable_at(21));
  EXPECT_FALSE(late.resumable_at(46));
  EXPECT_TRUE(late.resumable_at(47));
  EXPECT_EQ(late.resumable_floor(48), 48u);
  EXPECT_EQ(late.resumable_floor(46), 0u);
  EXPECT_EQ(late.resumable_floor(99), 50u);
  EXPECT_EQ(late.min_reusable(), 0u);
  EXPECT_FALSE(late.serves_all_of(early));
  EXPECT_FALSE(early.serves_all_of(late));
  EXPECT_TRUE(late.serves_all_of(late.clone_prefix(48)));
  EXPECT_FALSE(store->trim_to(a, 46));
  EXPECT_TRUE(store->trim_to(a, 47));
  EXPECT_TRUE(holds(*store, a, 47));
}

TEST(KvState, DetachingARowMovesItsReferences) {
  TestDevice device;
  auto store = make_store(device, {kFull});
  const KvRowId a = store->create_row();
  feed(*store, a, 12);

  KvState state = store->detach_row(a);
  const KvRowId b = store->create_row();
  store->adopt(b, std::move(state));
  device.copied_bytes = 0;
  feed(*store, b, 1);

  EXPECT_EQ(device.copied_bytes, 0u);  // nobody else held the tail
  EXPECT_NE(a, b);
}

TEST(KvPlanes, ExportIsChronologicalTokenMajorAndIndependentOfSharing_KV44_KV45) {
  TestDevice device;
  auto store = make_store(device, {kFull});
  const KvRowId a = store->create_row();
  feed(*store, a, 10);
  const KvRowId b = store->fork_row(a);
  feed(*store, b, 3);

  const auto planes = store->planes(store->capture(b));

  ASSERT_TRUE(planes);
  EXPECT_EQ(planes->layers[0].signature, "paged:bf16:bf16");
  ASSERT_EQ(planes->layers[0].planes.size(), 2u);
  ASSERT_EQ(planes->layers[0].planes[0].size_bytes(), 13u * 8 * 2);
  for (std::uint32_t p = 0; p < 13; ++p) {
    for (std::uint32_t head = 0; head < 2; ++head) {
      BFloat16 stored;
      std::memcpy(&stored, planes->layers[0].planes[1].data() + ((p * 2 + head) * 4 + 3) * 2, 2);
      EXPECT_EQ(to_f32(stored), mark(p, 0, head, 3, true));
    }
  }
}

TEST(KvPlanes, RestoreIntoAnyBlockSizeContinues_KV45) {
  for (const std::uint32_t from : {8u, 32u, 512u}) {
    for (const std::uint32_t to : {8u, 64u, 512u}) {
      TestDevice device;
      const KvList list{kFull, windowed(20), windowed(1)};
      auto writer = make_store(device, list, from, 1 << 20);
      auto reader = make_store(device, list, to, 1 << 20);
      const KvRowId a = writer->create_row();
      feed(*writer, a, 100);
      auto planes = writer->planes(writer->capture(a));
      ASSERT_TRUE(planes);

      auto state = reader->restore(*planes);
      ASSERT_TRUE(state) << state.error().what;
      EXPECT_EQ(check_invariants(reader->snapshot()), "");
      EXPECT_TRUE(state->resumable_at(100));
      const KvRowId b = reader->create_row();
      reader->adopt(b, *std::move(state));
      EXPECT_TRUE(holds(*reader, b, 100)) << from << " to " << to;
      feed(*reader, b, 70);
      EXPECT_TRUE(holds(*reader, b, 170));
      EXPECT_EQ(check_invariants(reader->snapshot()), "");
    }
  }
}

TEST(KvPlanes, PlanesThatDoNotMatchAreRefused) {
  TestDevice device;
  auto store = make_store(device, {kFull, windowed(8)});
  auto other = make_store(device, {kFull, windowed(9)});
  const KvRowId a = store->create_row();
  feed(*store, a, 40);
  KvPlanes planes = *store->planes(store->capture(a));

  EXPECT_FALSE(other->restore(planes));
  planes.layers[1].first_position = 39;
  EXPECT_FALSE(store->restore(planes));
  planes.layers[1].first_position = 32;
  EXPECT_TRUE(store->restore(planes));
  planes.length = 41;
  EXPECT_FALSE(store->restore(planes));
  planes.length = 40;
  planes.layers.pop_back();
  EXPECT_FALSE(store->restore(planes));
}

TEST(KvStore, AWindowOfOneReadsOnlyItself) {
  TestDevice device;
  auto store = make_store(device, {windowed(1)});
  const KvRowId a = store->create_row();
  feed(*store, a, 20);
  EXPECT_EQ(store->used_blocks(0), 1u);

  EXPECT_TRUE(store->trim_to(a, 3));  // nothing of it is held, nothing is needed

  EXPECT_EQ(store->used_blocks(0), 0u);
  EXPECT_EQ(check_invariants(store->snapshot()), "");
  feed(*store, a, 10);
  EXPECT_EQ(store->length(a), 13u);
  EXPECT_EQ(check_invariants(store->snapshot()), "");
}

}  // namespace
}  // namespace kvasir::kv
