// Rows that change from exact to encoded form (KV-20…28, KV-43).
#include <gtest/gtest.h>

#include "kv/testing.h"

namespace kvasir::kv {
namespace {

constexpr std::uint32_t kT = 32;  // the tests' first span

KvLayerSpec layer(std::uint32_t window = 0) {
  return {.n_kv_heads = 2, .head_dim = 64, .window = window};
}

KvScheme uniform(std::uint8_t bits, bool is_eager = false) {
  return {.kind = KvSchemeKind::affine_uniform,
          .bits = bits,
          .group = 32,
          .start = 0,
          .is_eager = is_eager,
          .first_span = kT};
}

KvScheme turbo() { return {.kind = KvSchemeKind::turbo, .start = 0, .first_span = kT}; }

std::unique_ptr<KvStore> make_store(TestDevice& device,
                                    const KvScheme& scheme,
                                    const KvList& list,
                                    std::uint32_t block_tokens = 8,
                                    std::size_t budget = 1 << 22) {
  auto made = KvStore::make(device, list,
                            {.scheme = scheme,
                             .block_tokens = block_tokens,
                             .budget_bytes = budget,
                             .split_tokens = 256});
  EXPECT_TRUE(made) << made.error().what;
  return *std::move(made);
}

// Feeds as the engine does: spans end at T, due rows convert first.
void feed(KvStore& store, KvRowId row, std::uint32_t n, std::uint32_t chunk = 7) {
  while (n > 0) {
    ASSERT_TRUE(store.convert(row));
    const std::uint32_t length = store.length(row);
    std::uint32_t take = std::min(n, chunk);
    if (length < kT) take = std::min(take, kT - length);
    const RowSpan span{row, take, 0};
    auto step = store.reserve({&span, 1});
    ASSERT_TRUE(step) << step.error().what;
    for (std::uint32_t p = length; p < length + take; ++p)
      mark_position(step->views(), 0, p, p, Marks::write);
    std::move(*step).commit();
    n -= take;
  }
}

bool holds(KvStore& store, KvRowId row) {
  if (!store.convert(row)) return false;
  const std::uint32_t length = store.length(row);
  const RowSpan span{row, 1, 0};
  auto step = store.reserve({&span, 1});
  if (!step) return false;
  bool same = true;
  for (std::uint32_t p = 0; p < length; ++p)
    same = same && mark_position(step->views(), 0, p, p, Marks::check);
  return same;
}

TEST(KvConvert, ARowIsExactBelowTAndEncodedFromThere_KV20_KV24) {
  for (const KvScheme& scheme : {uniform(4), uniform(8), turbo()}) {
    for (const std::uint32_t block_tokens : {8u, 64u}) {
      TestDevice device;
      auto store = make_store(device, scheme, {layer(), layer(20)}, block_tokens);
      const KvRowId row = store->create_row();
      feed(*store, row, kT);
      EXPECT_TRUE(store->is_due(row));
      const RowSpan span{row, 1, 0};
      EXPECT_FALSE(store->reserve({&span, 1})) << "due rows take no step";
      ASSERT_TRUE(store->convert(row));
      EXPECT_FALSE(store->is_due(row));
      EXPECT_TRUE(holds(*store, row)) << scheme.cache_key();
      EXPECT_EQ(check_invariants(store->snapshot()), "");
      feed(*store, row, 50);
      EXPECT_TRUE(holds(*store, row));
      EXPECT_EQ(check_invariants(store->snapshot()), "");
    }
  }
}

TEST(KvConvert, AStartOfZeroConvertsTheFilledFirstSpanAndNoEmptyRow_KV21) {
  for (const KvScheme& scheme : {uniform(4), uniform(8), turbo()}) {
    TestDevice device;
    auto store = make_store(device, scheme, {layer()});
    const KvRowId row = store->create_row();
    const auto is_encoded = [&](std::uint32_t n_tokens) {
      const RowSpan span{row, n_tokens, 0};
      const auto step = store->reserve({&span, 1});
      return step && step->views().attention[0].rows[0].is_encoded;
    };
    for (std::uint32_t length = 0; length < kT; ++length) {
      EXPECT_FALSE(store->is_due(row)) << length;
      ASSERT_TRUE(store->convert(row));
      EXPECT_FALSE(is_encoded(kT - length)) << length;
      feed(*store, row, 1);
    }
    ASSERT_TRUE(store->is_due(row));
    ASSERT_TRUE(store->convert(row));
    EXPECT_TRUE(is_encoded(1));
    EXPECT_TRUE(holds(*store, row)) << scheme.cache_key();
  }
}

// The store is the policy object: made once, asked before every step.
TEST(KvConvert, AskedBeforeEveryStepItEncodesALayerOnce_KV29) {
  static int n_encoded;  // the device's op is a plain function
  n_encoded = 0;
  TestDevice device;
  device.set_convert([](ops::Device& of, const ops::KvConvertArgs& args) noexcept {
    ++n_encoded;
    convert_rows(of, args);
  });
  auto store = make_store(device, uniform(4), {layer(), layer(20)});
  const KvRowId row = store->create_row(), young = store->create_row();
  feed(*store, young, 5);
  feed(*store, row, kT);
  const KvSnapshot before = store->snapshot();
  ASSERT_TRUE(store->convert(young));
  EXPECT_EQ(store->snapshot(), before);
  EXPECT_EQ(n_encoded, 0);

  ASSERT_TRUE(store->convert(row));
  EXPECT_EQ(n_encoded, 2);
  const KvSnapshot after = store->snapshot();
  for (int again = 0; again < 3; ++again) ASSERT_TRUE(store->convert(row));
  EXPECT_EQ(store->snapshot(), after);
  feed(*store, row, 30, 1);
  EXPECT_EQ(n_encoded, 2);
}

TEST(KvConvert, EveryCopyOfARowIsReadByTheSameKernels_KV34) {
  const KvList list{layer(), layer(20)};
  for (const KvScheme& scheme : {uniform(4), uniform(8), turbo(), KvScheme{}}) {
    for (const std::uint32_t n : {10u, kT + 9}) {
      TestDevice device;
      auto store = make_store(device, scheme, list);
      const KvRowId row = store->create_row();
      feed(*store, row, n);
      ASSERT_TRUE(store->convert(row));
      const auto adopted = [&](KvState state) {
        const KvRowId id = store->create_row();
        store->adopt(id, std::move(state));
        return id;
      };
      const auto planes = store->planes(store->capture(row));
      ASSERT_TRUE(planes);
      const KvRowId clone = store->fork_row(row), twin = store->fork_row(row);
      const KvRowId extracted = adopted(store->detach_row(twin));
      auto state = store->restore(*planes);
      ASSERT_TRUE(state) << state.error().what;
      const KvRowId restored = adopted(*std::move(state));

      const RowSpan spans[] = {{row, 1, 0}, {clone, 1, 0}, {extracted, 1, 0}, {restored, 1, 0}};
      const auto step = store->reserve(spans);
      ASSERT_TRUE(step) << step.error().what;
      const auto forms = *forms_of(scheme, list);
      for (std::size_t i = 0; i < list.size(); ++i) {
        const KvLayerView& view = step->views().attention[i];
        EXPECT_EQ(view.k_encoded.codec, forms[i].k);
        EXPECT_EQ(view.v_encoded.codec, forms[i].v);
        EXPECT_EQ(view.window, list[i].window);
        for (const KvRowView& of_row : view.rows)
          EXPECT_EQ(of_row.is_encoded, n > kT && forms[i].has_encoded()) << scheme.cache_key();
        EXPECT_EQ(store->signature(i, n), planes->layers[i].signature);
      }
    }
  }
}

// Predictions may count turbo as exact, the pool never does.
TEST(KvConvert, ThePoolCountsTheBytesThatTurboTakes_KV61) {
  TestDevice device;
  auto store = make_store(device, turbo(), {{.n_kv_heads = 2, .head_dim = 128}});
  const KvRowId row = store->create_row();
  feed(*store, row, kT);
  EXPECT_EQ(store->used_bytes(), kT * 2u * 512);
  ASSERT_TRUE(store->convert(row));
  EXPECT_EQ(store->used_bytes(), kT * 2u * (144 + 56));
  feed(*store, row, kT);
  EXPECT_EQ(store->used_bytes(), 2 * kT * store->bytes_per_token());
}

TEST(KvConvert, NoSpanCrossesT_KV23) {
  TestDevice device;
  auto store = make_store(device, uniform(4), {layer()});
  const KvRowId row = store->create_row();
  feed(*store, row, kT - 2);
  const RowSpan crossing{row, 3, 1}, touching{row, 2, 1};
  EXPECT_FALSE(store->reserve({&crossing, 1}));
  EXPECT_TRUE(store->reserve({&touching, 1}));
}

TEST(KvConvert, EagerRowsAreBornEncoded_KV22) {
  TestDevice device;
  auto store = make_store(device, uniform(8, /*is_eager=*/true), {layer(), layer()});
  const KvRowId row = store->create_row();
  feed(*store, row, 5);
  EXPECT_FALSE(store->is_due(row));
  EXPECT_TRUE(holds(*store, row));
  EXPECT_EQ(store->n_pools(), 1u);
  EXPECT_EQ(store->signature(0, 5), "paged:affine:8:32:affine:8:32");
  EXPECT_EQ(store->capture(row).min_reusable(), 0u);
}

TEST(KvConvert, WindowedLayersStayExactUnderTurboOnly_KV27) {
  TestDevice device;
  auto turbo_store = make_store(device, turbo(), {layer(), layer(20)});
  EXPECT_EQ(turbo_store->signature(0, 100), "paged:turbo:8:turbo:3@32");
  EXPECT_EQ(turbo_store->signature(0, 10), "paged:bf16:bf16@32");
  EXPECT_EQ(turbo_store->signature(1, 100), "windowed(20):bf16:bf16");
  auto affine_store = make_store(device, uniform(4), {layer(20)});
  EXPECT_EQ(affine_store->signature(0, 100), "windowed(20):affine:4:32:affine:4:32@32");
}

TEST(KvConvert, ASharedExactPrefixStaysTheOthers_KV25) {
  TestDevice device;
  auto store = make_store(device, uniform(4), {layer(), layer()});
  const KvRowId a = store->create_row();
  feed(*store, a, kT);
  KvState exact = store->capture(a);
  feed(*store, a, 10);  // converts a
  EXPECT_EQ(exact.length(), kT);
  EXPECT_EQ(exact.min_reusable(), 0u);
  for (const std::uint32_t p : {1u, 31u, kT}) EXPECT_TRUE(exact.resumable_at(p));
  const KvRowId b = store->create_row();
  store->adopt(b, exact.clone_prefix(20));
  feed(*store, b, 30);
  EXPECT_TRUE(holds(*store, a));
  EXPECT_TRUE(holds(*store, b));
  EXPECT_EQ(check_invariants(store->snapshot()), "");
}

TEST(KvConvert, EncodedStateServesFromTOnly_KV43) {
  TestDevice device;
  auto store = make_store(device, uniform(4), {layer()});
  const KvRowId row = store->create_row();
  feed(*store, row, 50);
  KvState state = store->capture(row);
  EXPECT_EQ(state.min_reusable(), kT);
  EXPECT_FALSE(state.resumable_at(kT - 1));
  EXPECT_TRUE(state.resumable_at(kT));
  EXPECT_TRUE(state.resumable_at(0));
  EXPECT_FALSE(state.trim_to(10));
  ASSERT_TRUE(state.trim_to(40));
  const KvRowId other = store->create_row();
  store->adopt(other, std::move(state));
  feed(*store, other, 9);
  EXPECT_TRUE(holds(*store, other));
  ASSERT_TRUE(store->trim_to(other, 0));
  feed(*store, other, 3);
  EXPECT_TRUE(holds(*store, other)) << "an emptied row starts exact again";
  EXPECT_EQ(check_invariants(store->snapshot()), "");
}

TEST(KvConvert, OneLayerAboveSteadyStateIsEnough_KV26) {
  TestDevice device;
  const KvList list(6, layer());
  auto store = make_store(device, uniform(4), list);
  const KvRowId row = store->create_row();
  feed(*store, row, kT);
  const std::uint32_t encoded = store->n_pools() - 1;
  const std::size_t layer_blocks = kT / 8;
  // All but one layer's worth of encoded blocks are taken by others.
  std::vector<KvRowId> others;
  for (int i = 0; i < 1000 && store->free_blocks(encoded) >= 2 * 6 * layer_blocks; ++i) {
    others.push_back(store->create_row());
    feed(*store, others.back(), kT);
    ASSERT_TRUE(store->convert(others.back()));
  }
  const std::size_t before = store->used_bytes();
  ASSERT_TRUE(store->convert(row));
  EXPECT_LT(store->used_bytes(), before) << "less than it held exact";
  EXPECT_TRUE(holds(*store, row));
}

TEST(KvConvert, ALayerThatFindsNoBlocksStaysExactAndTheRowWaits_KV26) {
  TestDevice device;
  const KvList list(4, layer());
  auto store = make_store(device, uniform(8), list, 8, 600'000);
  const std::uint32_t encoded = store->n_pools() - 1;
  std::vector<KvRowId> rows;
  Status status;
  for (int i = 0; i < 1000 && status; ++i) {  // until the encoded pool runs out
    rows.push_back(store->create_row());
    feed(*store, rows.back(), kT);
    status = store->convert(rows.back());
  }
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Errc::capacity);
  EXPECT_EQ(check_invariants(store->snapshot()), "");
  EXPECT_TRUE(store->is_due(rows.back()));
  EXPECT_LT(store->free_blocks(encoded), 16u);
  store->free_row(rows.front());
  EXPECT_TRUE(store->convert(rows.back()));
  EXPECT_TRUE(holds(*store, rows.back()));
}

TEST(KvConvert, RollbackInEncodedFormIsAsIfNeverFed_KV54) {
  TestDevice device;
  auto store = make_store(device, turbo(), {layer(), layer(16)});
  for (const std::uint32_t keep : {0u, 1u, 2u, 5u}) {
    const KvRowId row = store->create_row();
    feed(*store, row, 60);
    ASSERT_TRUE(store->convert(row));
    const RowSpan span{row, 5, keep == 0 ? 4u : 5 - keep};
    auto step = store->reserve({&span, 1});
    ASSERT_TRUE(step);
    for (std::uint32_t p = 60; p < 65; ++p)
      mark_position(step->views(), 0, p, p < 60 + keep ? p : p + 1000, Marks::write);
    std::move(*step).commit(std::array{keep});
    EXPECT_EQ(store->length(row), 60 + keep);
    feed(*store, row, 20);
    EXPECT_TRUE(holds(*store, row)) << keep;
    EXPECT_EQ(check_invariants(store->snapshot()), "");
  }
}

TEST(KvConvert, ExportAndRestoreInEitherForm_KV45) {
  for (const std::uint32_t n : {10u, kT, 70u}) {
    TestDevice device;
    const KvList list{layer(), layer(20)};
    auto writer = make_store(device, uniform(4), list, 8);
    auto reader = make_store(device, uniform(4), list, 64);
    auto other = make_store(device, uniform(8), list, 8);
    const KvRowId row = writer->create_row();
    feed(*writer, row, n);
    const auto planes = writer->planes(writer->capture(row));
    ASSERT_TRUE(planes);
    EXPECT_FALSE(n > kT && other->restore(*planes)) << "another scheme's bytes";
    auto state = reader->restore(*planes);
    ASSERT_TRUE(state) << state.error().what;
    EXPECT_EQ(state->min_reusable(), n > kT ? kT : 0u);
    const KvRowId copy = reader->create_row();
    reader->adopt(copy, *std::move(state));
    feed(*reader, copy, 40);
    EXPECT_TRUE(holds(*reader, copy)) << n;
    EXPECT_EQ(check_invariants(reader->snapshot()), "");
  }
}

TEST(KvConvert, ProjectionsCountTheFormARowHas_KV60) {
  TestDevice device;
  auto exact = make_store(device, {}, {layer()});
  auto encoded = make_store(device, uniform(4), {layer()});
  EXPECT_EQ(exact->bytes_per_token(), 2u * 2 * 64 * 2);
  EXPECT_EQ(encoded->bytes_per_token(), 2u * 2 * (32 + 2 * 2 * 2));
  EXPECT_EQ(encoded->projected_bytes(kT, 8), exact->projected_bytes(kT, 8));
  EXPECT_EQ(encoded->projected_bytes(kT + 8, 8), encoded->projected_bytes(kT, 8))
      << "conversion needs the exact form's room";
  EXPECT_EQ(encoded->projected_bytes(1024, 8), 1024 * encoded->bytes_per_token());
}

// Exact beyond T is a form that no run of this store has.
TEST(KvConvert, AForeignStateIsConvertedAsItStands_KV19) {
  const KvList list{layer(), layer(20)};
  TestDevice device;
  auto exact_store = make_store(device, {}, list);
  const KvRowId source = exact_store->create_row();
  feed(*exact_store, source, kT + 13);
  auto planes = *exact_store->planes(exact_store->capture(source));
  for (KvLayerPlanes& of_layer : planes.layers) of_layer.signature += "@" + std::to_string(kT);

  auto store = make_store(device, uniform(8), list);
  EXPECT_FALSE(store->restore(planes)) << "its own runs have no such state";
  auto state = store->restore(planes, KvOrigin::foreign);
  ASSERT_TRUE(state) << state.error().what;
  const KvRowId row = store->create_row();
  store->adopt(row, *std::move(state));
  EXPECT_TRUE(store->is_foreign(row));
  EXPECT_TRUE(store->is_due(row));
  ASSERT_TRUE(store->convert(row));
  EXPECT_TRUE(holds(*store, row));
  EXPECT_EQ(store->capture(row).min_reusable(), kT + 13);
  EXPECT_FALSE(store->resumable_at(row, kT));
  ASSERT_TRUE(store->trim_to(row, 0));
  EXPECT_FALSE(store->is_foreign(row));
}

// A conversion that runs out of blocks halfway leaves a state that nobody may cut below T.
TEST(KvConvert, AHalfConvertedStateIsNotTrimmedBelowT_KV43) {
  TestDevice device;
  const KvScheme scheme{
      .kind = KvSchemeKind::affine_uniform, .bits = 4, .group = 32, .start = 0, .first_span = kT};
  KvList list;
  for (int i = 0; i < 3; ++i) list.push_back({.n_kv_heads = 2, .head_dim = 64});
  auto store = *KvStore::make(
      device, list,
      {.scheme = scheme, .block_tokens = 8, .budget_bytes = 1 << 18, .split_tokens = 64});
  const auto row_at_t = [&] {
    const KvRowId row = store->create_row();
    const RowSpan span{row, kT, 0};
    auto step = store->reserve({&span, 1});
    EXPECT_TRUE(step);
    if (step) std::move(*step).commit();
    return row;
  };
  constexpr std::uint32_t kEncoded = 1;
  const std::size_t of_a_layer = kT / 8;
  while (store->free_blocks(kEncoded) >= 3 * of_a_layer) ASSERT_TRUE(store->convert(row_at_t()));
  ASSERT_GE(store->free_blocks(kEncoded), of_a_layer);
  const KvRowId row = row_at_t();
  EXPECT_FALSE(store->convert(row));
  EXPECT_TRUE(store->is_due(row));
  EXPECT_EQ(store->capture(row).min_reusable(), kT);
  EXPECT_FALSE(store->trim_to(row, kT - 10));
}

}  // namespace
}  // namespace kvasir::kv
