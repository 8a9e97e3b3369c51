#include "kv/speculative_round.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "kv/testing.h"

namespace kvasir::kv {
namespace {

constexpr const char* kInvalid = "speculative state is invalid and must be discarded";
constexpr const char* kDrafts = "invalid speculative draft count";
constexpr const char* kBegin = "speculative state cannot begin this round";
constexpr const char* kAccepted = "invalid speculative acceptance count";

struct ScriptedLayout final : RoundLayout {
  bool can = true;
  bool begin_fails = false, end_fails = false;
  std::string trace;
  bool can_begin(std::span<const std::uint32_t>) const override { return can; }
  Status begin(std::span<const std::uint32_t>) override {
    trace += "begin ";
    return begin_fails ? Status(Error{Errc::capacity, "kv blocks"}) : Status();
  }
  Status commit() override {
    trace += "commit ";
    return end_fails ? Status(Error{Errc::device, "lost"}) : Status();
  }
  Status rollback(std::span<const std::uint32_t> keep) override {
    trace += "rollback";
    for (const auto k : keep) trace += ":" + std::to_string(k);
    trace += " ";
    return end_fails ? Status(Error{Errc::device, "lost"}) : Status();
  }
};

using Counts = std::vector<std::int64_t>;

std::string text(const Status& status) { return status ? "ok" : status.error().what; }

TEST(SpeculativeRound, FullAcceptanceCommitsAndPartialRollsBackToKeep_KV52) {
  ScriptedLayout a, b;
  SpeculativeRound round({&a, &b});

  EXPECT_EQ(text(round.begin(Counts{3, 0, 2})), "ok");
  EXPECT_EQ(text(round.resolve(Counts{3, 0, 2})), "ok");
  EXPECT_EQ(text(round.begin(Counts{3, 0, 2})), "ok");
  EXPECT_EQ(text(round.resolve(Counts{1, 0, 2})), "ok");

  EXPECT_EQ(a.trace, "begin commit begin rollback:2:1:3 ");
  EXPECT_EQ(b.trace, a.trace);
  EXPECT_FALSE(round.active());
}

TEST(SpeculativeRound, BadCountsChangeNothing_KV50) {
  ScriptedLayout layout;
  SpeculativeRound round({&layout});

  EXPECT_EQ(text(round.begin(Counts{-1})), kDrafts);
  EXPECT_EQ(round.can_begin(Counts{-1}).error().what, kDrafts);
  EXPECT_EQ(text(round.resolve(Counts{0})), kAccepted);  // not active
  EXPECT_EQ(text(round.begin(Counts{2, 1})), "ok");
  EXPECT_EQ(text(round.begin(Counts{-1})), kDrafts);
  EXPECT_EQ(text(round.resolve(Counts{1})), kAccepted);
  EXPECT_EQ(text(round.resolve(Counts{3, 0})), kAccepted);
  EXPECT_EQ(text(round.resolve(Counts{0, -1})), kAccepted);
  EXPECT_TRUE(round.active());
  EXPECT_EQ(text(round.resolve(Counts{2, 1})), "ok");
  EXPECT_TRUE(round.valid());
}

TEST(SpeculativeRound, ARoundThatCannotBeginLeavesTheStateAsItIs_KV50) {
  ScriptedLayout a, b;
  SpeculativeRound round({&a, &b});

  b.can = false;
  EXPECT_FALSE(*round.can_begin(Counts{1}));
  EXPECT_EQ(text(round.begin(Counts{1})), kBegin);
  EXPECT_EQ(a.trace, "");
  b.can = true;
  EXPECT_TRUE(*round.can_begin(Counts{1}));
  EXPECT_EQ(text(round.begin(Counts{1})), "ok");
  EXPECT_FALSE(*round.can_begin(Counts{1}));
  EXPECT_EQ(text(round.begin(Counts{1})), kBegin);  // already active
  EXPECT_EQ(text(round.resolve(Counts{1})), "ok");
}

TEST(SpeculativeRound, ALayoutErrorInvalidatesForGood_KV50) {
  for (const bool at_begin : {true, false}) {
    ScriptedLayout a, b;
    SpeculativeRound round({&a, &b});
    a.begin_fails = at_begin;
    b.end_fails = !at_begin;

    if (at_begin) {
      EXPECT_EQ(text(round.begin(Counts{1})), "kv blocks");
      EXPECT_EQ(b.trace, "");
    } else {
      EXPECT_EQ(text(round.begin(Counts{1})), "ok");
      EXPECT_EQ(text(round.resolve(Counts{0})), "lost");
    }

    EXPECT_FALSE(round.valid());
    EXPECT_EQ(round.can_begin(Counts{-1}).error().what, kInvalid);
    EXPECT_EQ(text(round.begin(Counts{-1})), kInvalid);
    EXPECT_EQ(text(round.resolve(Counts{9})), kInvalid);
  }
}

TEST(SpeculativeRound, OverAStoreRowsKeepWhatWasAccepted_KV51_KV52) {
  TestDevice device;
  auto store =
      *KvStore::make(device, {{1, 2, 0}, {1, 2, 4}}, {.block_tokens = 8, .budget_bytes = 1 << 16});
  const KvRowId a = store->create_row(), b = store->create_row(), gone = store->create_row();
  KvRound rows(*store, {a, b, gone});
  SpeculativeRound round({&rows});

  ASSERT_TRUE(round.begin(Counts{9, 0, 4}));
  EXPECT_EQ(rows.views().attention[0].rows[0].n_new, 10u);
  EXPECT_EQ(rows.views().attention[0].rows[2].first_token, 11u);
  rows.discard(2);
  store->free_row(gone);
  ASSERT_TRUE(round.resolve(Counts{2, 0, 4}));

  EXPECT_EQ(store->length(a), 3u);
  EXPECT_EQ(store->length(b), 1u);
  EXPECT_EQ(check_invariants(store->snapshot()), "");
  EXPECT_EQ(store->used_blocks(0), 4u);
  EXPECT_EQ(text(round.begin(Counts{0, 0, 0})), kBegin);  // a freed row cannot begin
  store->free_row(a);
  store->free_row(b);
  EXPECT_EQ(store->used_blocks(0), 0u);
}

// Its one input is the committed pending token: there is nothing to replay.
TEST(SpeculativeRound, ARowWithoutDraftsKeepsNothingToRollBackTo_KV51) {
  TestDevice device;
  const KvList list{{1, 2, 0}, {.recurrent = {.conv_kernel = 2, .n_channels = 2}}};
  auto store = *KvStore::make(device, list,
                              {.block_tokens = 8, .budget_bytes = 1 << 16, .split_tokens = 64});
  const KvRowId a = store->create_row(), b = store->create_row();
  KvRound rows(*store, {a, b});
  SpeculativeRound round({&rows});
  const auto is_tentative = [&](std::size_t row) {
    return rows.views().recurrent[1].rows[row].is_tentative;
  };

  ASSERT_TRUE(round.begin(Counts{3, 0}));
  EXPECT_TRUE(is_tentative(0));
  EXPECT_FALSE(is_tentative(1));
  EXPECT_EQ(rows.views().attention[0].rows[1].n_new, 1u);
  EXPECT_EQ(text(round.resolve(Counts{0, 1})), kAccepted);
  ASSERT_TRUE(round.resolve(Counts{1, 0}));
  EXPECT_EQ(store->length(a), 2u);
  EXPECT_EQ(store->length(b), 1u);

  ASSERT_TRUE(round.begin(Counts{0, 0}));
  EXPECT_FALSE(is_tentative(0) || is_tentative(1));
  ASSERT_TRUE(round.resolve(Counts{0, 0}));
  EXPECT_EQ(store->length(a), 3u);
  EXPECT_EQ(store->length(b), 2u);
  EXPECT_EQ(check_invariants(store->snapshot()), "");
}

// A round that would be refused is told so first, and loses nothing.
TEST(SpeculativeRound, CanBeginKnowsOfRowsThatHaveToBeConverted_KV50) {
  TestDevice device;
  const KvScheme quantized{
      .kind = KvSchemeKind::affine_uniform, .bits = 4, .group = 32, .start = 0, .first_span = 32};
  auto store = *KvStore::make(
      device, {{.n_kv_heads = 2, .head_dim = 64}},
      {.scheme = quantized, .block_tokens = 8, .budget_bytes = 1 << 22, .split_tokens = 256});
  for (const std::uint32_t length : {30u, 32u}) {  // the window crosses T; T is reached
    const KvRowId row = store->create_row();
    const RowSpan span{row, length, 0};
    auto step = store->reserve({&span, 1});
    ASSERT_TRUE(step);
    std::move(*step).commit();
    KvRound layout(*store, {row});
    SpeculativeRound round({&layout});
    const auto can = round.can_begin(Counts{3});
    ASSERT_TRUE(can);
    EXPECT_FALSE(*can) << length;
    EXPECT_TRUE(round.valid());
  }
}

}  // namespace
}  // namespace kvasir::kv
