// Random sequences of every operation, on every layout in every form, against a naive model (token
// lists): the books are checked after each, and bytes read back. The seed of a failing run is in
// its message.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "kv/detail/naive_model.h"

namespace kvasir::kv {
namespace {

constexpr std::uint32_t kT = 24;

// Held states are a cache: the store may have them forgotten.
class Trial final : public KvReclaimer {
 public:
  Trial(std::uint32_t seed, const KvList& list, const KvScheme& scheme, std::uint32_t block_tokens)
      : random_(seed), block_tokens_(block_tokens), naive_{list, scheme} {
    std::size_t budget = 1;  // room for about five rows of 40 tokens
    std::unique_ptr<KvStore> probe = make_store(std::size_t{1} << 28);
    budget = 5 * probe->projected_bytes(40, 40);
    store_ = make_store(budget);
    store_->set_reclaimer(this);
  }
  ~Trial() override { store_->set_reclaimer(nullptr); }

  void run(int n_operations) {
    for (int i = 0; i < n_operations && !::testing::Test::HasFailure(); ++i) {
      operation();
      ASSERT_EQ(check_invariants(store_->snapshot()), "") << "operation " << i;
      for (const auto& [row, tokens] : rows_) ASSERT_EQ(store_->length(row), tokens.size());
      for (const auto& state : states_) ASSERT_EQ(state.state.length(), state.tokens.size());
    }
    states_.clear();
    for (const auto& [row, tokens] : rows_) store_->free_row(row);
    for (std::uint32_t p = 0; p < store_->n_pools(); ++p) ASSERT_EQ(store_->used_blocks(p), 0u);
  }

  std::size_t committed = 0, refused = 0, evicted = 0, copied() { return device_.copied_bytes; }

  bool reclaim(std::span<const std::size_t> wanted) noexcept override {
    for (std::uint32_t p = 0; p < wanted.size(); ++p)
      if (store_->free_blocks(p) + reclaimable(p) < wanted[p]) return false;
    const auto enough = [&] {
      for (std::uint32_t p = 0; p < wanted.size(); ++p)
        if (store_->free_blocks(p) < wanted[p]) return false;
      return true;
    };
    for (; !enough(); ++evicted) states_.erase(states_.begin());
    return true;
  }
  std::size_t reclaimable(std::uint32_t pool) const noexcept override {
    std::map<std::uint32_t, std::uint32_t> counts;
    std::vector<KvBlockRef> blocks;
    for (const Held& held : states_) held.state.append_blocks(blocks);
    for (const KvBlockRef& block : blocks)
      if (block.pool == pool) ++counts[block.block.value];
    return static_cast<std::size_t>(
        std::count_if(counts.begin(), counts.end(), [&](const auto& count) {
          return store_->refs({pool, BlockId{count.first}}) == count.second;
        }));
  }

 private:
  struct Held {
    KvState state;
    Tokens tokens;
  };

  std::unique_ptr<KvStore> make_store(std::size_t budget) {
    auto made = KvStore::make(device_, naive_.list,
                              {.scheme = naive_.scheme,
                               .block_tokens = block_tokens_,
                               .budget_bytes = budget,
                               .split_tokens = 40,
                               .split_chunk = 40});
    EXPECT_TRUE(made) << made.error().what;
    return *std::move(made);
  }

  std::uint32_t below(std::size_t n) { return static_cast<std::uint32_t>(random_() % n); }
  auto any_row() { return std::next(rows_.begin(), below(rows_.size())); }

  void operation() {
    const std::uint32_t dice = below(20);
    if (rows_.empty() || (dice == 0 && rows_.size() < 6)) {
      rows_[store_->create_row()];
    } else if (dice < 11) {
      step();
    } else if (dice < 13) {
      const auto row = any_row();
      states_.push_back({store_->capture(row->first), row->second});
    } else if (dice < 15 && !states_.empty()) {
      adopt();
    } else if (dice == 15) {
      trim_row();
    } else if (dice == 16 && !states_.empty()) {
      states_.erase(states_.begin() + below(states_.size()));
    } else if (dice == 17 && rows_.size() < 6) {
      const auto row = any_row();
      const Tokens tokens = row->second;
      rows_[store_->fork_row(row->first)] = tokens;
    } else if (dice == 18) {
      const auto row = any_row();
      states_.push_back({store_->detach_row(row->first), row->second});
      rows_.erase(row);
    } else {
      const auto row = any_row();
      store_->free_row(row->first);
      rows_.erase(row);
    }
  }

  void adopt() {
    const Held& held = states_[below(states_.size())];
    const std::uint32_t p = held.state.resumable_floor(below(held.tokens.size() + 1));
    if (p == 0 || rows_.size() >= 6) return;
    EXPECT_EQ(difference(naive_, *store_, held.state, held.tokens), "");
    const KvRowId row = store_->create_row();
    store_->adopt(row, held.state.clone_prefix(p));
    rows_[row] = Tokens(held.tokens.begin(), held.tokens.begin() + p);
  }

  void trim_row() {
    const auto row = any_row();
    const std::uint32_t p = below(row->second.size() + 1);
    const bool legal = store_->resumable_at(row->first, p);
    ASSERT_EQ(bool(store_->trim_to(row->first, p)), legal);
    if (legal) row->second.resize(p);
  }

  void step() {
    const std::vector<RowSpan> spans = any_spans();
    if (spans.empty()) return;
    const KvSnapshot before = store_->snapshot();
    const std::size_t evicted_before = evicted;
    const bool can = store_->can_reserve(spans);
    auto reserved = store_->reserve(spans);
    ASSERT_EQ(bool(reserved), can);
    if (!reserved) {
      ++refused;
      ASSERT_EQ(reserved.error().what, "kv blocks");
      ASSERT_EQ(store_->snapshot(), before);
      return drop_something();
    }
    KvStep running = *std::move(reserved);
    ASSERT_EQ(check_invariants(store_->snapshot()), "");
    const std::vector<Tokens> fed = check_and_write(running, spans);
    if (below(5) == 0) {
      { const KvStep dropped = std::move(running); }
      if (evicted == evicted_before) {
        ASSERT_EQ(store_->snapshot(), before);
      }
      return;
    }
    std::vector<std::uint32_t> keep;
    for (std::size_t i = 0; i < spans.size(); ++i) {
      keep.push_back(below(6) == 0 ? 0 : spans[i].n_tokens - below(spans[i].n_drafts + 1));
      if (keep[i] > 0 && keep[i] < spans[i].n_tokens)
        naive_.replay(running.views(), i, std::span(fed[i]).first(keep[i]));
      if (below(12) == 0) {
        running.discard(i);
      } else {
        Tokens& tokens = rows_[spans[i].row];
        tokens.insert(tokens.end(), fed[i].begin(), fed[i].begin() + keep[i]);
      }
    }
    std::move(running).commit(keep);
    ++committed;
  }

  // Rows as the engine plans them: due ones convert first, no span crosses the transition.
  std::vector<RowSpan> any_spans() {
    std::vector<RowSpan> spans;
    for (const auto& [row, tokens] : rows_) {
      if (below(2) || tokens.size() > 60) continue;
      if (!store_->convert(row)) {
        ++refused;
        drop_something();
        return {};
      }
      std::uint32_t n = 1 + (below(3) ? below(4) : below(30));
      if (tokens.size() < store_->transition())
        n = std::min(n, static_cast<std::uint32_t>(
                            std::min<std::uint64_t>(store_->transition() - tokens.size(), 100)));
      spans.push_back({row, n, below(2) ? below(n) : 0});
    }
    return spans;
  }

  // Some rows are compared whole; then each fed token is written, rejected ones too.
  std::vector<Tokens> check_and_write(const KvStep& running, std::span<const RowSpan> spans) {
    std::vector<Tokens> fed(spans.size());
    for (std::size_t i = 0; i < spans.size(); ++i) {
      const Tokens& tokens = rows_[spans[i].row];
      if (below(4) == 0) {
        for (std::uint32_t p = 0; p < tokens.size(); ++p)
          EXPECT_TRUE(mark_position(running.views(), i, p, tokens[p], Marks::check))
              << "position " << p;
      }
      for (const KvLayerView& view : running.views().attention) {
        if (view.n_kv_heads == 0) continue;
        const std::size_t needed =
            view.window && tokens.size() >= view.window ? tokens.size() - view.window + 1 : 0;
        EXPECT_LE(view.rows[i].first_position, needed);
      }
      for (std::uint32_t n = 0; n < spans[i].n_tokens; ++n)
        fed[i].push_back(static_cast<std::uint32_t>(random_()));
      naive_.feed(running.views(), i, fed[i]);
    }
    return fed;
  }

  void drop_something() {
    if (!states_.empty()) states_.erase(states_.begin() + below(states_.size()));
    const auto row = any_row();
    EXPECT_EQ(difference(naive_, *store_, store_->capture(row->first), row->second), "");
    store_->free_row(row->first);
    rows_.erase(row);
  }

  std::mt19937 random_;
  std::uint32_t block_tokens_;
  Naive naive_;
  TestDevice device_;
  std::unique_ptr<KvStore> store_;
  std::map<KvRowId, Tokens> rows_;
  std::vector<Held> states_;
};

constexpr KvLayerSpec kLatent{.latent = {.rank = 6, .rope_dim = 2, .index_dim = 3}};
constexpr KvLayerSpec kState{
    .recurrent = {
        .conv_kernel = 4, .n_channels = 3, .n_value_heads = 1, .value_dim = 2, .key_dim = 3}};
constexpr KvLayerSpec kTail{.recurrent = {.conv_kernel = 3, .n_channels = 2}};

const std::vector<KvList> kExactLists{
    {{1, 2, 0}},
    {{2, 1, 0}, {1, 2, 11}, {1, 2, 11}, {2, 1, 0}},
    {{1, 2, 16}, {1, 2, 1}},
    {{1, 2, 0}, {1, 4, 8}, {2, 2, 20}},
    {kLatent, kLatent},
    {kState, {1, 2, 0}, kState, kTail},
    {kLatent, kTail, {1, 2, 9}},
};
const std::vector<KvList> kEncodedLists{{{1, 64, 0}, {1, 64, 11}}, {kState, {1, 64, 0}, kLatent}};

KvScheme scheme_of(KvSchemeKind kind, bool is_eager = false) {
  return {.kind = kind,
          .bits = 8,
          .group = 32,
          .k_bits = 4,
          .v_bits = 4,
          .start = 0,
          .is_eager = is_eager,
          .first_span = kT};
}

struct Totals {
  std::size_t committed = 0, refused = 0, evicted = 0, copied = 0;
};

void run_trials(const std::vector<KvList>& lists,
                const KvScheme& scheme,
                std::uint32_t n_seeds,
                int n_operations,
                Totals& totals) {
  for (const std::uint32_t block_tokens : {8u, 16u, 64u}) {
    for (std::size_t i = 0; i < lists.size(); ++i) {
      for (std::uint32_t seed = 1; seed <= n_seeds; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed) + " list " + std::to_string(i) + " block " +
                     std::to_string(block_tokens) + " " + scheme.cache_key());
        Trial trial(seed, lists[i], scheme, block_tokens);
        trial.run(n_operations);
        totals.committed += trial.committed, totals.refused += trial.refused;
        totals.evicted += trial.evicted, totals.copied += trial.copied();
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

void expect_all_paths(const Totals& totals) {
  EXPECT_GT(totals.committed, 1000u);
  EXPECT_GT(totals.refused, 10u);
  EXPECT_GT(totals.evicted, 100u);
  EXPECT_GT(totals.copied, 0u);
}

// 7 lists × 3 block sizes × 3 seeds × 1,000 operations, and 2 × 3 × 3 × 700 for each of three
// encoded forms: 10^5 in all.
TEST(KvStoreRandom, EveryOperationSequenceKeepsBytesAndBooks_KV37_KV54) {
  Totals totals;
  run_trials(kExactLists, {}, 3, 1000, totals);
  expect_all_paths(totals);
}

TEST(KvStoreRandom, AffineFormsToo_KV20_KV54) {
  Totals totals;
  run_trials(kEncodedLists, scheme_of(KvSchemeKind::affine_uniform), 3, 700, totals);
  expect_all_paths(totals);
}

TEST(KvStoreRandom, FormsFromTheFirstTokenToo_KV22_KV54) {
  Totals totals;
  run_trials(kEncodedLists, scheme_of(KvSchemeKind::affine_uniform, true), 3, 700, totals);
  expect_all_paths(totals);
}

TEST(KvStoreRandom, TurboFormsToo_KV27_KV54) {
  Totals totals;
  run_trials(kEncodedLists, scheme_of(KvSchemeKind::turbo), 3, 700, totals);
  expect_all_paths(totals);
}

TEST(KvStoreRandom, TheLargestBlockSizeToo_KV37) {
  for (std::uint32_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Trial trial(seed, kExactLists[3], {}, 512);
    trial.run(100);
  }
}

}  // namespace
}  // namespace kvasir::kv
