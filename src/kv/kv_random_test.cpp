// Random sequences of every operation against a naive model (token lists), with the books checked
// after each and every position read back through the views. The seed of a failing run is in its
// message.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "kv/kv_store.h"
#include "kv/testing.h"

namespace kvasir::kv {
namespace {

using Tokens = std::vector<std::uint32_t>;

class Trial {
 public:
  Trial(std::uint32_t seed, const KvList& list, std::uint32_t block_tokens)
      : random_(seed), block_tokens_(block_tokens) {
    auto made = KvStore::make(device_, list,
                              {.block_tokens = block_tokens, .budget_bytes = 3000 * block_tokens});
    EXPECT_TRUE(made) << made.error().what;
    store_ = *std::move(made);
  }

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

  std::size_t committed = 0, refused = 0, copied() { return device_.copied_bytes; }

 private:
  struct Held {
    KvState state;
    Tokens tokens;
  };

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
    std::vector<RowSpan> spans;
    for (const auto& [row, tokens] : rows_) {
      if (below(2)) continue;
      const std::uint32_t n = 1 + (below(3) ? below(4) : below(2 * block_tokens_));
      spans.push_back({row, n, below(2) ? below(n) : 0});
    }
    const KvSnapshot before = store_->snapshot();
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
    std::vector<Tokens> fed = check_and_write(running, spans);
    if (below(5) == 0) {
      { const KvStep dropped = std::move(running); }
      ASSERT_EQ(store_->snapshot(), before);
      return;
    }
    std::vector<std::uint32_t> keep;
    for (std::size_t i = 0; i < spans.size(); ++i) {
      keep.push_back(below(6) == 0 ? 0 : spans[i].n_tokens - below(spans[i].n_drafts + 1));
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

  // Every position the row holds must read back; then each fed token is written, rejected ones too.
  std::vector<Tokens> check_and_write(const KvStep& running, std::span<const RowSpan> spans) {
    std::vector<Tokens> fed(spans.size());
    for (std::size_t i = 0; i < spans.size(); ++i) {
      const Tokens& tokens = rows_[spans[i].row];
      for (std::uint32_t p = 0; p < tokens.size(); ++p)
        EXPECT_TRUE(mark_position(running.views(), i, p, tokens[p], Marks::check))
            << "position " << p;
      for (const KvLayerView& view : running.views().attention) {
        if (view.window && tokens.size() >= view.window)
          EXPECT_LE(view.rows[i].first_position, tokens.size() - view.window + 1);
        else
          EXPECT_EQ(view.rows[i].first_position, 0u);
      }
      for (std::uint32_t n = 0; n < spans[i].n_tokens; ++n) {
        fed[i].push_back(static_cast<std::uint32_t>(random_()));
        const auto p = static_cast<std::uint32_t>(tokens.size()) + n;
        mark_position(running.views(), i, p, fed[i].back(), Marks::write);
      }
    }
    return fed;
  }

  void drop_something() {
    if (!states_.empty()) states_.erase(states_.begin() + below(states_.size()));
    const auto row = any_row();
    store_->free_row(row->first);
    rows_.erase(row);
  }

  std::mt19937 random_;
  std::uint32_t block_tokens_;
  TestDevice device_;
  std::unique_ptr<KvStore> store_;
  std::map<KvRowId, Tokens> rows_;
  std::vector<Held> states_;
};

const std::vector<KvList> kLists{
    {{1, 2, 0}},
    {{2, 1, 0}, {1, 2, 11}, {1, 2, 11}, {2, 1, 0}},
    {{1, 2, 16}, {1, 2, 1}},
    {{1, 2, 0}, {1, 4, 8}, {2, 2, 20}},
};

TEST(KvStoreRandom, EveryOperationSequenceKeepsBytesAndBooks_KV37_KV54) {
  std::size_t committed = 0, refused = 0, copied = 0;
  for (const std::uint32_t block_tokens : {8u, 16u, 64u}) {
    for (std::size_t i = 0; i < kLists.size(); ++i) {
      for (std::uint32_t seed = 1; seed <= 6; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed) + " list " + std::to_string(i) + " block " +
                     std::to_string(block_tokens));
        Trial trial(seed, kLists[i], block_tokens);
        trial.run(200);
        committed += trial.committed, refused += trial.refused, copied += trial.copied();
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(committed, 1000u);
  EXPECT_GT(refused, 10u);
  EXPECT_GT(copied, 0u);
}

TEST(KvStoreRandom, TheLargestBlockSizeToo_KV37) {
  for (std::uint32_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Trial trial(seed, kLists[3], 512);
    trial.run(100);
  }
}

}  // namespace
}  // namespace kvasir::kv
