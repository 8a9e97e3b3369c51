// What the penalties see (SAMP-5…7): prompt + emitted tokens, append-only, with the counts of each
// penalty's window kept up to date token by token, so a long context costs nothing per step and a
// snapshot is a length. Private to sampling/.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace kvasir::sampling::detail {

// How often each token stands in the last `window` tokens (0: all) of the history from `first` on.
class WindowCounts {
 public:
  struct Entry {
    TokenId token = 0;
    std::uint32_t count = 0;
  };

  WindowCounts(std::uint32_t vocab, std::uint32_t window)
      : slot_of_(vocab, kNone), window_(window) {}

  void clear(std::size_t first) noexcept;  // empty history; positions before `first` never count
  void pushed(std::span<const TokenId> history);            // history.back() is new
  void popping(std::span<const TokenId> history) noexcept;  // history.back() is about to go
  std::span<const Entry> entries() const noexcept {
    return entries_;
  }  // distinct tokens, in no particular order

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
  void add(TokenId token);  // ids outside the vocabulary (media placeholders) have no score to
                            // change: ignored
  void remove(TokenId token) noexcept;

  std::vector<std::uint32_t> slot_of_;  // token → index into entries_
  std::vector<Entry> entries_;
  std::uint32_t window_ = 0;
  std::size_t first_ = 0;
};

class History {
 public:
  // Registers a window; `with_prompt`: the prompt's tokens count too. Before seed() only.
  std::size_t add_window(std::uint32_t vocab, std::uint32_t window, bool with_prompt);
  void seed(std::span<const TokenId> prompt, std::span<const TokenId> emitted);
  void push(TokenId token);
  void truncate(std::size_t n_tokens) noexcept;
  std::size_t size() const noexcept { return tokens_.size(); }
  std::span<const WindowCounts::Entry> window(std::size_t index) const noexcept {
    return windows_[index].counts.entries();
  }

 private:
  struct Window {
    WindowCounts counts;
    bool with_prompt = false;
  };
  std::vector<TokenId> tokens_;
  std::vector<Window> windows_;
};

}  // namespace kvasir::sampling::detail
