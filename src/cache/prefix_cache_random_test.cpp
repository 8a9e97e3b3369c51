// Random put and take against a list of token vectors (CACHE test 1), and rows, hits and reclaim
// under pressure with every byte read back. The seed of a failing run is in its message.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "cache/detail/test_rows.h"
#include "cache/prefix_cache.h"

namespace kvasir::cache {
namespace {

const std::vector<KvList> kLists{{{1, 2, 0}}, {{1, 2, 0}, {1, 2, 6}}, {{2, 1, 5}}};

std::uint32_t common_length(const Tokens& a, const Tokens& b) {
  std::uint32_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return n;
}

class NaiveCache {
 public:
  explicit NaiveCache(std::size_t max_entries) : max_entries_(max_entries) {}

  std::uint32_t take(const Tokens& prompt, const std::string& ns) {
    Entry* best = nullptr;
    std::uint32_t length = 0;
    for (Entry& entry : entries_) {
      const std::uint32_t p = entry.ns == ns ? usable(entry, prompt) : 0;
      if (p > length || (p == length && p > 0 && entry.used > best->used))
        best = &entry, length = p;
    }
    if (best) best->used = ++clock_;
    return length;
  }

  void put(const Tokens& tokens, kv::KvState state, const std::string& ns) {
    std::erase_if(entries_, [&](const Entry& e) {
      if (e.ns != ns || common_length(e.tokens, tokens) != e.tokens.size()) return false;
      if (e.tokens.size() == tokens.size()) return true;
      for (std::uint32_t p = 1; p <= e.tokens.size(); ++p)
        if (e.state.resumable_at(p) && !state.resumable_at(p)) return false;
      return true;
    });
    entries_.push_back({tokens, std::move(state), ns, ++clock_});
    while (entries_.size() > max_entries_) {
      entries_.erase(
          std::min_element(entries_.begin(), entries_.end(),
                           [](const Entry& a, const Entry& b) { return a.used < b.used; }));
    }
  }

  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    Tokens tokens;
    kv::KvState state;
    std::string ns;
    std::uint64_t used = 0;
  };

  static std::uint32_t usable(const Entry& entry, const Tokens& prompt) {
    const std::uint32_t p = std::min(common_length(entry.tokens, prompt),
                                     static_cast<std::uint32_t>(prompt.size()) - 1);
    return entry.state.resumable_at(p) ? p : 0;
  }

  std::size_t max_entries_;
  std::vector<Entry> entries_;
  std::uint64_t clock_ = 0;
};

Tokens random_tokens(std::mt19937& random, std::size_t longest) {
  Tokens out(1 + random() % longest);
  for (TokenId& token : out)
    token = random() % 8 == 0 ? 2 : 1;  // long common prefixes, many branches
  return out;
}

TEST(PrefixCacheRandom, TakeAndPutAgreeWithAListOfTokenVectors_CACHE2_CACHE6) {
  std::size_t hits = 0;
  for (std::size_t list = 0; list < kLists.size(); ++list) {
    for (std::uint32_t seed = 1; seed <= 8; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed) + " list " + std::to_string(list));
      std::mt19937 random(seed);
      TestRows rows(kLists[list], 8, 1 << 20);
      const std::size_t max_entries = seed % 2 ? 1000 : 7;
      PrefixCache cache(rows.store(), {.max_entries = max_entries});
      NaiveCache naive(max_entries);
      for (int i = 0; i < 200; ++i) {
        const Tokens tokens = random_tokens(random, 40);
        const std::string ns = random() % 4 == 0 ? "b" : "a";
        if (random() % 2) {
          kv::KvState state = rows.state_of(tokens, 1 + static_cast<std::uint32_t>(random() % 9));
          ASSERT_TRUE(state);
          naive.put(tokens, state.clone(), ns);
          ASSERT_TRUE(cache.put(tokens, std::move(state), ns));
        } else {
          const auto hit = cache.take(tokens, ns);
          ASSERT_EQ(hit ? hit->length : 0, naive.take(tokens, ns)) << "operation " << i;
          hits += hit.has_value();
        }
        ASSERT_EQ(cache.stats().entries, naive.size()) << "operation " << i;
        ASSERT_EQ(cache.check_invariants(), "") << "operation " << i;
      }
    }
  }
  EXPECT_GT(hits, 500u);
}

// What a server does, in a store too small for it: rows start from hits, grow, publish at
// boundaries and at the end, some are cancelled; reserve reclaims cached prefixes. C24: no row ever
// reads another's bytes.
class Server {
 public:
  Server(std::uint32_t seed, const KvList& list)
      : random_(seed),
        rows_(list, 8, 40 * 2 * 2 * 8 * 2 * list.size()),
        cache_(rows_.store(), {}) {}

  void run(int n_operations) {
    for (int i = 0; i < n_operations; ++i) {
      operation();
      ASSERT_EQ(cache_.check_invariants(), "") << "operation " << i;
      ASSERT_EQ(check_invariants(rows_.store().snapshot()), "") << "operation " << i;
      if (::testing::Test::HasFailure()) return;
    }
    for (const Running& row : running_) rows_.store().free_row(row.id);
    running_.clear();
    cache_.clear();
    ASSERT_EQ(rows_.store().used_blocks(0), 0u);
  }

  std::size_t hits = 0, full = 0;

 private:
  struct Running {
    KvRowId id;
    Tokens tokens;
    Retain retain;
  };

  void operation() {
    if (running_.size() < 4 && random_() % 3 == 0) return start();
    if (running_.empty()) return;
    const std::size_t i = random_() % running_.size();
    Running& row = running_[i];
    const std::uint32_t length = rows_.store().length(row.id);
    switch (random_() % 8) {
      case 0:  // cancelled: nothing is published (KV-55)
        rows_.store().free_row(row.id);
        running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
        return;
      case 1:  // a boundary
        if (length > 0) publish(first(row.tokens, length), rows_.store().capture(row.id));
        return;
      default:
        break;
    }
    if (length < row.tokens.size()) return grow(row, length);
    const kv::RowSpan span{row.id, 1, 0};
    EXPECT_TRUE(!rows_.store().can_reserve({&span, 1}) || rows_.holds(row.id, row.tokens));
    publish(row.tokens, rows_.store().detach_row(row.id));
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  void grow(Running& row, std::uint32_t length) {
    const std::size_t end = std::min<std::size_t>(row.tokens.size(), length + 1 + random_() % 20);
    const kv::RowSpan span{row.id, static_cast<std::uint32_t>(end) - length, 0};
    const bool can = rows_.store().can_reserve({&span, 1});
    EXPECT_EQ(rows_.feed(row.id, row.tokens, static_cast<std::uint32_t>(end)), can);
    if (!can) ++full;
  }

  void start() {
    Running row{rows_.store().create_row(), random_tokens(random_, 90), {}};
    if (auto hit = cache_.take(row.tokens, "")) {
      ++hits;
      EXPECT_LT(hit->length, row.tokens.size());
      EXPECT_EQ(hit->state.length(), hit->length);
      rows_.store().adopt(row.id, std::move(hit->state));
      row.retain = std::move(hit->retain);
      const kv::RowSpan span{row.id, 1, 0};
      EXPECT_TRUE(!rows_.store().can_reserve({&span, 1}) || rows_.holds(row.id, row.tokens));
    }
    running_.push_back(std::move(row));
  }

  void publish(const Tokens& tokens, kv::KvState state) {
    EXPECT_TRUE(cache_.put(tokens, std::move(state), ""));
  }

  std::mt19937 random_;
  TestRows rows_;
  PrefixCache cache_;
  std::vector<Running> running_;
};

TEST(PrefixCacheRandom, RowsHitsAndReclaimUnderPressureNeverMixOrLeak_CACHE7_CACHE9_C24) {
  std::size_t hits = 0, full = 0;
  for (std::size_t list = 0; list < kLists.size(); ++list) {
    for (std::uint32_t seed = 1; seed <= 8; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed) + " list " + std::to_string(list));
      Server server(seed, kLists[list]);
      server.run(400);
      hits += server.hits, full += server.full;
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(hits, 300u);
  EXPECT_GT(full, 0u);
}

}  // namespace
}  // namespace kvasir::cache
