#include "text/tokenizer/byte_trie.h"

#include "text/tokenizer/mix.h"

namespace kvasir::text::tok {

std::size_t ByteTrie::slot_of(std::uint64_t key) const noexcept {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = mix64(key) & mask;
  while (slots_[at].key != 0 && slots_[at].key != key) at = (at + 1) & mask;
  return at;
}

void ByteTrie::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.key != 0) slots_[slot_of(slot.key)] = slot;
  }
}

std::uint32_t ByteTrie::child(std::uint32_t node, unsigned char byte) const noexcept {
  const std::uint64_t key = (std::uint64_t{node} << 8 | byte) + 1;
  const Slot& slot = slots_[slot_of(key)];
  return slot.key == 0 ? kNone : slot.node;
}

void ByteTrie::insert(std::string_view key, std::uint32_t value) {
  if (key.empty()) return;
  starts_[static_cast<unsigned char>(key[0])] = true;
  std::uint32_t node = kRoot;
  for (const char c : key) {
    const std::uint64_t edge = (std::uint64_t{node} << 8 | static_cast<unsigned char>(c)) + 1;
    std::size_t at = slot_of(edge);
    if (slots_[at].key == 0) {
      if (values_.size() * 2 > slots_.size()) {
        grow();
        at = slot_of(edge);
      }
      slots_[at] = {edge, static_cast<std::uint32_t>(values_.size())};
      values_.push_back(kNone);
    }
    node = slots_[at].node;
  }
  if (values_[node] == kNone) values_[node] = value;
}

}  // namespace kvasir::text::tok
