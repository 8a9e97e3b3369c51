#include "text/tokenizer/vocab.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace kvasir::text::tok {
namespace {

std::uint32_t hash_of(std::string_view piece) noexcept {
  return static_cast<std::uint32_t>(std::hash<std::string_view>{}(piece));
}

}  // namespace

std::size_t Vocab::slot_of(std::string_view piece, std::uint32_t hash) const noexcept {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash & mask;
  while (slots_[at].id != kAbsent &&
         !(slots_[at].hash == hash && this->piece(slots_[at].id) == piece)) {
    at = (at + 1) & mask;
  }
  return at;
}

void Vocab::rehash(std::size_t n_slots) {
  std::vector<Slot> old(n_slots);
  old.swap(slots_);
  const std::size_t mask = n_slots - 1;
  for (const Slot& slot : old) {
    if (slot.id == kAbsent) continue;
    std::size_t at = slot.hash & mask;
    while (slots_[at].id != kAbsent) at = (at + 1) & mask;
    slots_[at] = slot;
  }
}

void Vocab::reserve(std::size_t n_pieces) {
  n_pieces = std::min(n_pieces, kMaxVocabEntries);
  entries_.reserve(n_pieces);
  arena_.reserve(n_pieces * 7);
  const std::size_t n_slots = std::bit_ceil(std::max<std::size_t>(64, n_pieces * 2));
  if (n_slots > slots_.size()) rehash(n_slots);
}

Status Vocab::add(std::string_view piece, std::uint64_t id) {
  if (id > kMaxTokenId)
    return invalid("tokenizer: token id " + std::to_string(id) + " is too large");
  if (n_pieces_ >= kMaxVocabEntries) return invalid("tokenizer: more than 2^20 vocabulary entries");
  if (arena_.size() + piece.size() >= kAbsent) return invalid("tokenizer: vocabulary too large");
  const auto token = static_cast<TokenId>(id);
  const std::uint32_t hash = hash_of(piece);
  std::size_t at = slot_of(piece, hash);
  const bool is_new = slots_[at].id == kAbsent;
  if (token >= entries_.size()) entries_.resize(token + 1);
  // A piece given twice keeps its first id; the second id still spells it.
  if (!is_new && slots_[at].id == token) return {};
  if (is_new && (n_pieces_ + 1) * 2 > slots_.size()) {
    rehash(slots_.size() * 2);
    at = slot_of(piece, hash);
  }
  // An id given twice: its old piece no longer leads anywhere else than this id, whose spelling
  // changes.
  entries_[token] = {static_cast<std::uint32_t>(arena_.size()),
                     static_cast<std::uint32_t>(piece.size())};
  arena_ += piece;
  longest_ = std::max(longest_, piece.size());
  if (is_new) {
    slots_[at] = {hash, token};
    ++n_pieces_;
  }
  return {};
}

std::optional<TokenId> Vocab::find(std::string_view piece) const noexcept {
  const Slot& slot = slots_[slot_of(piece, hash_of(piece))];
  if (slot.id == kAbsent) return std::nullopt;
  return slot.id;
}

std::optional<TokenId> Vocab::find_in_text(std::string_view piece) const noexcept {
  const auto id = find(piece);
  return id && is_hidden(*id) ? std::nullopt : id;
}

void Vocab::hide_from_text(TokenId id) {
  if (id >= hidden_.size()) hidden_.resize(id + 1);
  hidden_[id] = true;
}

std::string_view Vocab::piece(TokenId id) const noexcept {
  if (!has(id)) return {};
  return std::string_view(arena_).substr(entries_[id].offset, entries_[id].n_bytes);
}

}  // namespace kvasir::text::tok
