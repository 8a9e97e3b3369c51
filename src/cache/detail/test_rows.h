// Rows of a small store whose planes are filled with marks of the prefix each position ends: what a
// cached state holds can be told exactly.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cache/prefix_cache.h"
#include "kv/testing.h"

namespace kvasir::cache {

using Tokens = std::vector<TokenId>;

class TestRows {
 public:
  TestRows(const KvList& list, std::uint32_t block_tokens, std::size_t budget) {
    auto made =
        kv::KvStore::make(device_, list, {.block_tokens = block_tokens, .budget_bytes = budget});
    EXPECT_TRUE(made) << made.error().what;
    store_ = *std::move(made);
  }
  kv::KvStore& store() { return *store_; }
  std::size_t& copied_bytes() { return device_.copied_bytes; }

  // Feeds tokens[length(row), end) in chunks; false when the store has no room (nothing of that
  // chunk is kept).
  bool feed(KvRowId row,
            std::span<const TokenId> tokens,
            std::uint32_t end,
            std::uint32_t chunk = 64) {
    const std::vector<std::uint32_t> marks = prefix_marks(tokens);
    while (store_->length(row) < end) {
      const std::uint32_t begin = store_->length(row);
      const kv::RowSpan span{row, std::min(chunk, end - begin), 0};
      auto step = store_->reserve({&span, 1});
      if (!step) return false;
      for (std::uint32_t p = begin; p < begin + span.n_tokens; ++p)
        kv::mark_position(step->views(), 0, p, marks[p], kv::Marks::write);
      std::move(*step).commit();
    }
    return true;
  }
  // The state of exactly these tokens, as one cold run leaves it; empty when there is no room.
  kv::KvState state_of(std::span<const TokenId> tokens, std::uint32_t chunk = 64) {
    const KvRowId row = store_->create_row();
    if (feed(row, tokens, static_cast<std::uint32_t>(tokens.size()), chunk))
      return store_->detach_row(row);
    store_->free_row(row);
    return {};
  }
  // Whether every position the row holds is that of these tokens (through a step that is dropped).
  bool holds(KvRowId row, std::span<const TokenId> tokens) {
    const kv::RowSpan span{row, 1, 0};
    auto step = store_->reserve({&span, 1});
    if (!step) return false;
    const std::vector<std::uint32_t> marks = prefix_marks(tokens);
    for (std::uint32_t p = 0; p < store_->length(row); ++p)
      if (!kv::mark_position(step->views(), 0, p, marks[p], kv::Marks::check)) return false;
    return true;
  }

 private:
  // One value a position, telling the whole prefix that ends there.
  static std::vector<std::uint32_t> prefix_marks(std::span<const TokenId> tokens) {
    std::vector<std::uint32_t> out;
    std::uint32_t h = 2166136261u;
    for (const TokenId token : tokens) out.push_back(h = (h ^ token) * 16777619u);
    return out;
  }

  kv::TestDevice device_;
  std::unique_ptr<kv::KvStore> store_;
};

inline Tokens counting(std::uint32_t n, TokenId from = 1) {
  Tokens out(n);
  for (std::uint32_t i = 0; i < n; ++i) out[i] = from + i;
  return out;
}

inline Tokens joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline Tokens first(const Tokens& tokens, std::uint32_t n) {
  return {tokens.begin(), tokens.begin() + n};
}

}  // namespace kvasir::cache
