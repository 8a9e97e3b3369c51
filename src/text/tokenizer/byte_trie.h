// A trie over byte strings in one flat hash table: prefix matching for added tokens, Unigram and
// WordPiece.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace kvasir::text::tok {

class ByteTrie {
 public:
  static constexpr std::uint32_t kRoot = 0;
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  void insert(std::string_view key, std::uint32_t value);  // an existing key keeps its first value
  bool empty() const noexcept { return values_.size() == 1; }

  std::uint32_t child(std::uint32_t node,
                      unsigned char byte) const noexcept;  // kNone: no such child
  std::uint32_t value(std::uint32_t node) const noexcept {
    return values_[node];
  }  // kNone: no key ends here
  bool may_start(unsigned char byte) const noexcept { return starts_[byte]; }

 private:
  struct Slot {
    std::uint64_t key = 0;  // (parent node << 8 | byte) + 1; 0 = free
    std::uint32_t node = 0;
  };
  std::size_t slot_of(std::uint64_t key) const noexcept;
  void grow();

  std::vector<Slot> slots_ = std::vector<Slot>(64);
  std::vector<std::uint32_t> values_ = {kNone};  // [n_nodes]
  std::vector<bool> starts_ = std::vector<bool>(256);
};

}  // namespace kvasir::text::tok
