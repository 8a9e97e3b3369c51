// What every layout in every form must do, whatever the block size (KV-35…56): each property runs
// over the lists of layouts and codecs, against a model that has neither blocks nor steps.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "kv/detail/naive_model.h"
#include "kv/list.h"

namespace kvasir::kv {
namespace {

constexpr std::uint32_t kT = 32;  // first span of these tests

// At least one layer of every layout.
const std::vector<KvLayerSpec> kLayers{
    {.n_kv_heads = 2, .head_dim = 64},
    {.n_kv_heads = 1, .head_dim = 64, .window = 20},
    {.latent = {.rank = 16, .rope_dim = 8}},
    {.latent = {.rank = 16, .rope_dim = 8, .index_dim = 4}},
    {.recurrent =
         {.conv_kernel = 4, .n_channels = 6, .n_value_heads = 2, .value_dim = 3, .key_dim = 5}},
    {.recurrent = {.conv_kernel = 3, .n_channels = 8}},
};

KvScheme affine(std::uint8_t bits, std::uint16_t group, bool is_eager = false) {
  return {.kind = KvSchemeKind::affine_uniform,
          .bits = bits,
          .group = group,
          .start = 0,
          .is_eager = is_eager,
          .first_span = kT};
}
KvScheme turbo(std::uint8_t k, std::uint8_t v) {
  return {.kind = KvSchemeKind::turbo, .k_bits = k, .v_bits = v, .start = 0, .first_span = kT};
}
std::vector<KvScheme> all_schemes() {
  std::vector<KvScheme> out{{}, affine(8, 64), affine(8, 64, true), turbo(8, 3)};
  for (const codec::KvCodecPair& pair : codec::paired_kv_codecs(codec::ScaleType::bf16))
    out.push_back({.kind = KvSchemeKind::named,
                   .k_codec = pair.k,
                   .v_codec = pair.v,
                   .start = 0,
                   .first_span = kT});
  return out;
}

struct Case {
  KvList list;
  KvScheme scheme;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.list.size() << " layers, " << c.scheme.cache_key();
}

// Each layer alone, and all of them together; those that a scheme cannot serve are left out.
std::vector<Case> all_cases() {
  std::vector<KvList> lists{kLayers};
  for (const KvLayerSpec& layer : kLayers) lists.push_back({layer, layer});
  std::vector<Case> out;
  for (const KvList& list : lists)
    for (const KvScheme& scheme : all_schemes())
      if (forms_of(scheme, list)) out.push_back({list, scheme});
  return out;
}

class KvProperty : public ::testing::TestWithParam<Case> {
 protected:
  std::unique_ptr<KvStore> make_store(std::uint32_t block_tokens = 8) {
    auto made = KvStore::make(device_, naive_.list,
                              {.scheme = naive_.scheme,
                               .block_tokens = block_tokens,
                               .budget_bytes = std::size_t{1} << 22,
                               .split_tokens = 256});
    EXPECT_TRUE(made) << made.error().what;
    return *std::move(made);
  }

  static Tokens random_tokens(std::uint32_t n, std::uint32_t seed) {
    std::mt19937 random(seed);
    Tokens out(n);
    for (std::uint32_t& token : out) token = static_cast<std::uint32_t>(random());
    return out;
  }

  // As the engine feeds: due rows convert first, no span crosses T.
  std::uint32_t next_span(KvStore& store, KvRowId row, std::uint32_t wanted) {
    EXPECT_TRUE(store.convert(row));
    const std::uint32_t length = store.length(row);
    const bool may_cross = store.transition() == kNeverEncoded || length >= store.transition();
    return may_cross ? wanted
                     : std::min<std::uint32_t>(
                           wanted, static_cast<std::uint32_t>(store.transition()) - length);
  }
  void feed(KvStore& store,
            KvRowId row,
            std::span<const std::uint32_t> tokens,
            std::uint32_t chunk) {
    while (!tokens.empty()) {
      const auto left = static_cast<std::uint32_t>(tokens.size());
      const std::uint32_t n = next_span(store, row, std::min(chunk, left));
      const RowSpan span{row, n, 0};
      auto step = store.reserve({&span, 1});
      ASSERT_TRUE(step) << step.error().what;
      naive_.feed(step->views(), 0, tokens.first(n));
      std::move(*step).commit();
      tokens = tokens.subspan(n);
    }
    ASSERT_TRUE(store.convert(row));
  }
  std::string wrong(const KvStore& store, KvRowId row, const Tokens& tokens) {
    return difference(naive_, store, store.capture(row), tokens);
  }

  Naive naive_{GetParam().list, GetParam().scheme};
  TestDevice device_;
};

TEST_P(KvProperty, AnyChunksAndAnyBlockSizeGiveTheSameState_KV37) {
  const Tokens tokens = random_tokens(70, 1);
  for (const std::uint32_t block_tokens : {8u, 16u, 64u, 512u}) {
    for (const std::uint32_t chunk : {1u, 7u, 64u, 70u}) {
      auto store = make_store(block_tokens);
      const KvRowId row = store->create_row();
      feed(*store, row, tokens, chunk);
      EXPECT_EQ(wrong(*store, row, tokens), "") << block_tokens << " " << chunk;
      EXPECT_EQ(check_invariants(store->snapshot()), "");
    }
  }
}

TEST_P(KvProperty, RollbackEqualsNeverFed_KV52_KV53_KV54) {
  for (const std::uint32_t length : {0u, 1u, 9u, 31u, 33u, 61u}) {
    for (std::uint32_t keep = 0; keep <= 5; ++keep) {
      auto store = make_store();
      const KvRowId row = store->create_row();
      Tokens tokens = random_tokens(length, 2);
      feed(*store, row, tokens, 64);
      const std::uint32_t n = next_span(*store, row, 5);
      if (keep > n) continue;
      const Tokens window = random_tokens(n, 3);
      const RowSpan span{row, n, n - 1};
      auto step = store->reserve({&span, 1});
      ASSERT_TRUE(step);
      naive_.feed(step->views(), 0, window);
      if (keep > 0 && keep < n) naive_.replay(step->views(), 0, std::span(window).first(keep));
      const std::uint32_t kept[] = {keep};
      std::move(*step).commit(kept);
      tokens.insert(tokens.end(), window.begin(), window.begin() + keep);
      ASSERT_TRUE(store->convert(row));
      EXPECT_EQ(wrong(*store, row, tokens), "") << length << " keep " << keep;
      const Tokens more = random_tokens(30, 4);
      feed(*store, row, more, 11);
      tokens.insert(tokens.end(), more.begin(), more.end());
      EXPECT_EQ(wrong(*store, row, tokens), "") << length << " keep " << keep << " then 30 more";
    }
  }
}

TEST_P(KvProperty, RowsOfABatchKeepWhatEachWants_KV44_KV52) {
  auto store = make_store();
  std::vector<Tokens> tokens;
  std::vector<RowSpan> spans;
  std::vector<Tokens> windows;
  const std::uint32_t lengths[] = {3, 40, 27, 64}, keep[] = {2, 0, 4, 1};
  for (std::uint32_t i = 0; i < 4; ++i) {
    const KvRowId row = store->create_row();
    tokens.push_back(random_tokens(lengths[i], i));
    feed(*store, row, tokens[i], 64);
    spans.push_back({row, 4, 3});
    windows.push_back(random_tokens(4, 10 + i));
  }
  auto step = store->reserve(spans);
  ASSERT_TRUE(step);
  for (std::uint32_t i = 0; i < 4; ++i) naive_.feed(step->views(), i, windows[i]);
  for (std::uint32_t i = 0; i < 4; ++i)
    if (keep[i] > 0 && keep[i] < 4)
      naive_.replay(step->views(), i, std::span(windows[i]).first(keep[i]));
  std::move(*step).commit(keep);
  for (std::uint32_t i = 0; i < 4; ++i) {
    tokens[i].insert(tokens[i].end(), windows[i].begin(), windows[i].begin() + keep[i]);
    EXPECT_EQ(wrong(*store, spans[i].row, tokens[i]), "") << "row " << i;
  }
}

// Membership is which rows a step names, in any order; each row's planes are those of a run alone.
TEST_P(KvProperty, RowsJoinLeaveAndReorderWithoutMovingABlock_KV44) {
  struct Row {
    KvRowId id;
    Tokens tokens;
  };
  auto store = make_store();
  std::vector<Row> rows;
  std::mt19937 random(15);
  const auto idle_rows = [&](std::span<const RowSpan> in_step) {
    std::vector<KvSnapshot::Row> out = store->snapshot().rows;
    for (const RowSpan& span : in_step)
      std::erase_if(out, [&](const KvSnapshot::Row& row) { return row.id == span.row; });
    return out;
  };
  device_.copied_bytes = 0;
  for (std::uint32_t round = 0; round < 24; ++round) {
    if (round % 4 == 0) rows.push_back({store->create_row(), {}});
    if (round % 9 == 8) {
      store->free_row(rows.front().id);
      rows.erase(rows.begin());
    }
    std::shuffle(rows.begin(), rows.end(), random);
    const std::size_t n_members = 1 + random() % rows.size();
    std::vector<RowSpan> spans;
    std::vector<Tokens> fed;
    for (std::size_t i = 0; i < n_members; ++i) {
      const auto wanted = static_cast<std::uint32_t>(1 + random() % 9);
      const std::uint32_t n = next_span(*store, rows[i].id, wanted);
      spans.push_back({rows[i].id, n, 0});
      fed.push_back(random_tokens(n, 100 * round + static_cast<std::uint32_t>(i)));
    }
    const auto others = idle_rows(spans);
    auto step = store->reserve(spans);
    ASSERT_TRUE(step) << step.error().what;
    for (std::size_t i = 0; i < n_members; ++i) {
      naive_.feed(step->views(), i, fed[i]);
      rows[i].tokens.insert(rows[i].tokens.end(), fed[i].begin(), fed[i].end());
    }
    std::move(*step).commit();
    EXPECT_EQ(idle_rows(spans), others) << "round " << round;
  }
  for (Row& row : rows) {  // extracted, each goes on alone
    KvState state = store->detach_row(row.id);
    row.id = store->create_row();
    store->adopt(row.id, std::move(state));
    const Tokens more = random_tokens(20, 16);
    feed(*store, row.id, more, 6);
    row.tokens.insert(row.tokens.end(), more.begin(), more.end());
  }
  EXPECT_EQ(device_.copied_bytes, 0u);
  for (const Row& row : rows) EXPECT_EQ(wrong(*store, row.id, row.tokens), "");
}

TEST_P(KvProperty, SharersNeverSeeEachOther_KV25_KV37) {
  for (const std::uint32_t length : {5u, 31u, 40u, 64u}) {
    auto store = make_store();
    const KvRowId a = store->create_row();
    Tokens of_a = random_tokens(length, 5);
    feed(*store, a, of_a, 64);
    const KvState kept = store->capture(a);
    const KvRowId b = store->fork_row(a);
    Tokens of_b = of_a;
    for (auto& [row, tokens, seed] : {std::tuple{a, &of_a, 6u}, std::tuple{b, &of_b, 7u}}) {
      const Tokens more = random_tokens(20, seed);
      feed(*store, row, more, 6);
      tokens->insert(tokens->end(), more.begin(), more.end());
    }
    EXPECT_EQ(wrong(*store, a, of_a), "");
    EXPECT_EQ(wrong(*store, b, of_b), "");
    const Tokens before(of_a.begin(), of_a.begin() + length);
    EXPECT_EQ(difference(naive_, *store, kept, before), "");
    EXPECT_EQ(check_invariants(store->snapshot()), "");
  }
}

TEST_P(KvProperty, TrimmedEqualsNeverFed_KV38_KV43) {
  for (std::uint32_t p = 0; p <= 64; ++p) {
    auto store = make_store();
    const KvRowId row = store->create_row();
    Tokens tokens = random_tokens(64, 8);
    feed(*store, row, tokens, 64);
    const bool is_legal = store->resumable_at(row, p);
    ASSERT_EQ(bool(store->trim_to(row, p)), is_legal);
    if (!is_legal) continue;
    tokens.resize(p);
    EXPECT_EQ(wrong(*store, row, tokens), "") << p;
    const Tokens more = random_tokens(70, 9);
    feed(*store, row, more, 13);
    tokens.insert(tokens.end(), more.begin(), more.end());
    EXPECT_EQ(wrong(*store, row, tokens), "") << p << " then 70 more";
  }
}

TEST_P(KvProperty, ARestoredStateIsTheLiveOneInAnyBlockSize_KV45) {
  for (const std::uint32_t length : {0u, 1u, 19u, 32u, 45u, 64u}) {
    auto store = make_store(16);
    const KvRowId row = store->create_row();
    Tokens tokens = random_tokens(length, 11);
    feed(*store, row, tokens, 64);
    const auto planes = store->planes(store->capture(row));
    ASSERT_TRUE(planes);
    auto other = make_store(64);
    auto restored = other->restore(*planes);
    ASSERT_TRUE(restored) << restored.error().what;
    EXPECT_EQ(difference(naive_, *other, *restored, tokens), "") << length;
    const KvRowId again = other->create_row();
    other->adopt(again, *std::move(restored));
    const Tokens more = random_tokens(40, 12);
    feed(*other, again, more, 9);
    tokens.insert(tokens.end(), more.begin(), more.end());
    EXPECT_EQ(wrong(*other, again, tokens), "") << length;
  }
}

TEST_P(KvProperty, AnAbandonedStepLeavesNoTrace_KV53_KV55) {
  auto store = make_store();
  const KvRowId row = store->create_row();
  const Tokens tokens = random_tokens(45, 13);
  feed(*store, row, tokens, 64);
  const KvSnapshot before = store->snapshot();
  const RowSpan span{row, 9, 0};
  {
    auto step = store->reserve({&span, 1});
    ASSERT_TRUE(step);
    EXPECT_EQ(check_invariants(store->snapshot()), "");
    naive_.feed(step->views(), 0, random_tokens(9, 14));
  }
  EXPECT_EQ(store->snapshot(), before);
  EXPECT_EQ(wrong(*store, row, tokens), "");
}

std::string name_of_case(const ::testing::TestParamInfo<Case>& info) {
  std::string out;
  for (const KvLayerSpec& layer : info.param.list) {
    const std::string name = find_layout(layer)->signature(layer, "x");
    out += name.substr(0, name.find('(')).substr(0, name.find(':')) + "_";
    if (info.param.list.size() == 2) break;
  }
  std::replace(out.begin(), out.end(), '+', '_');
  std::string key = info.param.scheme.cache_key();
  std::replace(key.begin(), key.end(), '-', '_');
  return (info.param.list.size() > 2 ? "all_" : out) + key + "_" + std::to_string(info.index);
}

INSTANTIATE_TEST_SUITE_P(Kv, KvProperty, ::testing::ValuesIn(all_cases()), name_of_case);

TEST(KvPropertyList, CoversEveryLayoutOfTheList) {
  KvLayouts::for_each([]<class L>() {
    EXPECT_TRUE(std::any_of(kLayers.begin(), kLayers.end(),
                            [](const KvLayerSpec& layer) { return L::owns(layer); }));
  });
}

}  // namespace
}  // namespace kvasir::kv
