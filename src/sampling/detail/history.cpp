#include "sampling/detail/history.h"

#include <algorithm>

namespace kvasir::sampling::detail {

void WindowCounts::clear(std::size_t first) noexcept {
  for (const Entry& e : entries_) slot_of_[e.token] = kNone;
  entries_.clear();
  first_ = first;
}

void WindowCounts::pushed(std::span<const TokenId> history) {
  const std::size_t n = history.size();
  if (n <= first_) return;
  const std::size_t n_seen = n - first_;
  if (window_ != 0 && n_seen > window_) remove(history[n - 1 - window_]);
  add(history.back());
}

// The reverse of pushed(). Never allocates: the entry that comes back stood there before the push.
void WindowCounts::popping(std::span<const TokenId> history) noexcept {
  const std::size_t n = history.size();
  if (n <= first_) return;
  remove(history.back());
  const std::size_t n_seen = n - first_;
  if (window_ != 0 && n_seen > window_) add(history[n - 1 - window_]);
}

void WindowCounts::add(TokenId token) {
  if (token >= slot_of_.size()) return;
  std::uint32_t& slot = slot_of_[token];
  if (slot == kNone) {
    slot = static_cast<std::uint32_t>(entries_.size());
    entries_.push_back({token, 0});
  }
  ++entries_[slot].count;
}

void WindowCounts::remove(TokenId token) noexcept {
  if (token >= slot_of_.size()) return;
  const std::uint32_t slot = slot_of_[token];
  if (--entries_[slot].count > 0) return;
  entries_[slot] = entries_.back();
  slot_of_[entries_[slot].token] = slot;
  entries_.pop_back();
  slot_of_[token] = kNone;
}

std::size_t History::add_window(std::uint32_t vocab, std::uint32_t window, bool with_prompt) {
  windows_.push_back({WindowCounts(vocab, window), with_prompt});
  return windows_.size() - 1;
}

void History::seed(std::span<const TokenId> prompt, std::span<const TokenId> emitted) {
  tokens_.clear();
  tokens_.reserve(prompt.size() + emitted.size());
  for (Window& w : windows_) w.counts.clear(w.with_prompt ? 0 : prompt.size());
  for (TokenId t : prompt) push(t);
  for (TokenId t : emitted) push(t);
}

void History::push(TokenId token) {
  tokens_.push_back(token);
  for (Window& w : windows_) w.counts.pushed(tokens_);
}

void History::truncate(std::size_t n_tokens) noexcept {
  while (tokens_.size() > n_tokens) {
    for (Window& w : windows_) w.counts.popping(tokens_);
    tokens_.pop_back();
  }
}

}  // namespace kvasir::sampling::detail
