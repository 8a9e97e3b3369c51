// Token pieces by id and ids by piece, in two flat tables over one arena: a vocabulary of 262k
// pieces loads in tens of milliseconds. Written at load only, then shared by all threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace kvasir::text::tok {

inline constexpr TokenId kMaxTokenId = (1u << 24) - 1;     // TXT-14
inline constexpr std::size_t kMaxVocabEntries = 1u << 20;  // TXT-14

class Vocab {
 public:
  void reserve(std::size_t n_pieces);
  // Errors: an id or a count past the limits. A repeated piece keeps its first id, a repeated id
  // its last piece.
  Status add(std::string_view piece, std::uint64_t id);

  std::optional<TokenId> find(std::string_view piece) const noexcept;
  // Like find, for a model at work on text: special tokens are matched before it or not at all, so
  // that text cannot spell one (TXT-32).
  std::optional<TokenId> find_in_text(std::string_view piece) const noexcept;
  void hide_from_text(TokenId id);
  bool is_hidden(TokenId id) const noexcept { return id < hidden_.size() && hidden_[id]; }
  bool has(TokenId id) const noexcept {
    return id < entries_.size() && entries_[id].n_bytes != kAbsent;
  }
  std::string_view piece(TokenId id) const noexcept;            // empty when absent
  std::size_t end() const noexcept { return entries_.size(); }  // largest id + 1
  std::size_t count() const noexcept { return n_pieces_; }      // distinct pieces
  std::size_t longest_piece_bytes() const noexcept { return longest_; }

 private:
  static constexpr std::uint32_t kAbsent = 0xFFFFFFFF;
  struct Entry {
    std::uint32_t offset = 0;
    std::uint32_t n_bytes = kAbsent;
  };
  struct Slot {
    std::uint32_t hash = 0;
    TokenId id = kAbsent;  // kAbsent: free
  };
  std::size_t slot_of(std::string_view piece, std::uint32_t hash) const noexcept;
  void rehash(std::size_t n_slots);

  std::string arena_;
  std::vector<Entry> entries_;
  std::vector<bool> hidden_;  // by id; shorter than entries_ where nothing is hidden
  std::vector<Slot> slots_ = std::vector<Slot>(64);
  std::size_t n_pieces_ = 0;
  std::size_t longest_ = 0;
};

}  // namespace kvasir::text::tok
