// The merge loop of BPE: repeatedly joins the adjacent pair of least rank, leftmost on ties. O(n
// log n) for n symbols.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "text/tokenizer/model.h"

namespace kvasir::text::tok {

struct Merge {
  std::uint64_t rank = 0;
  TokenId id = 0;  // of the joined symbol
};

// scratch.symbols is a list linked by prev/next; pair(left, right) → optional<Merge>. Merged
// symbols get n_bytes 0.
template <class Pair>
void merge_all(Scratch& scratch, const Pair& pair) {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  heap.clear();
  const auto is_later = [](const Scratch::Candidate& a, const Scratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  };
  const auto candidate = [&](std::int32_t left,
                             std::int32_t right) -> std::optional<Scratch::Candidate> {
    if (left < 0 || right < 0) return std::nullopt;
    const Scratch::Symbol& a = symbols[static_cast<std::size_t>(left)];
    const Scratch::Symbol& b = symbols[static_cast<std::size_t>(right)];
    const std::optional<Merge> merge = pair(a, b);
    if (!merge) return std::nullopt;
    return Scratch::Candidate{merge->rank, static_cast<std::uint32_t>(left), b.n_bytes, a.n_bytes,
                              merge->id};
  };
  for (std::int32_t i = 0; i + 1 < static_cast<std::int32_t>(symbols.size()); ++i) {
    if (const auto c = candidate(i, i + 1)) heap.push_back(*c);
  }
  std::make_heap(heap.begin(), heap.end(), is_later);
  const auto push = [&](std::int32_t left, std::int32_t right) {
    if (const auto c = candidate(left, right)) {
      heap.push_back(*c);
      std::push_heap(heap.begin(), heap.end(), is_later);
    }
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), is_later);
    const Scratch::Candidate top = heap.back();
    heap.pop_back();
    Scratch::Symbol& left = symbols[top.left];
    if (left.n_bytes != top.left_bytes || left.next < 0)
      continue;  // a symbol only ever grows or goes
    Scratch::Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    if (right.n_bytes != top.right_bytes) continue;
    left.id = top.id;
    left.n_bytes += right.n_bytes;
    right.n_bytes = 0;
    left.next = right.next;
    if (right.next >= 0)
      symbols[static_cast<std::size_t>(right.next)].prev = static_cast<std::int32_t>(top.left);
    push(left.prev, static_cast<std::int32_t>(top.left));
    push(static_cast<std::int32_t>(top.left), left.next);
  }
}

// SentencePiece vocabularies mark spaces with U+2581. Where no piece has the mark after another
// character, no merge crosses the border before a mark: words can be merged one by one, in small
// working sets.
class WordBorders {
 public:
  explicit WordBorders(const Vocab& vocab)
      : is_usable_(vocab.find(kMark).has_value() && never_inside(vocab)) {}

  // Calls tokenize for each stretch of piece that merges stay within.
  template <class Tokenize>
  void for_each_word(std::string_view piece, const Tokenize& tokenize) const {
    std::size_t begin = 0;
    while (is_usable_ && begin < piece.size()) {
      const std::size_t border = next_border(piece, begin);
      if (border == std::string_view::npos) break;
      tokenize(piece.substr(begin, border - begin));
      begin = border;
    }
    tokenize(piece.substr(begin));
  }

 private:
  static constexpr std::string_view kMark = "\xE2\x96\x81";

  // The first mark after `begin` that follows something else than a mark.
  static std::size_t next_border(std::string_view piece, std::size_t begin) noexcept {
    std::size_t at = begin;
    while (piece.substr(at).starts_with(kMark)) at += kMark.size();
    return at >= piece.size() ? std::string_view::npos : piece.find(kMark, at);
  }
  static bool never_inside(const Vocab& vocab) noexcept {
    for (TokenId id = 0; id < vocab.end(); ++id) {
      if (next_border(vocab.piece(id), 0) != std::string_view::npos) return false;
    }
    return true;
  }

  bool is_usable_;
};

// Numbers and links the symbols 0, 1, … in the order they were added.
inline void link_symbols(std::vector<Scratch::Symbol>& symbols) {
  const auto n = static_cast<std::int32_t>(symbols.size());
  for (std::int32_t i = 0; i < n; ++i) {
    symbols[static_cast<std::size_t>(i)].prev = i - 1;
    symbols[static_cast<std::size_t>(i)].next = i + 1 < n ? i + 1 : -1;
  }
}

}  // namespace kvasir::text::tok
