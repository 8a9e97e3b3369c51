// Text on its way through the normalizers, with what must survive them: which bytes come from spans
// that may spell special tokens (TXT-32), and whether the text still begins where the whole input
// did.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvasir::text::tok {

class Normalized {
 public:
  std::string text;
  // Per byte of text: 1 = may be part of a special token. Empty: the same for all bytes,
  // all_allowed.
  std::vector<std::uint8_t> allowed;
  bool all_allowed = true;
  // The first character comes from the first character of the input (Metaspace's "first" looks at
  // it).
  bool is_from_start = true;

  bool may_be_special(std::size_t begin, std::size_t end) const noexcept {
    if (allowed.empty()) return all_allowed;
    for (std::size_t i = begin; i < end; ++i) {
      if (allowed[i] == 0) return false;
    }
    return true;
  }
};

// Rewrites a Normalized from front to back: every piece of output names the input bytes it was made
// from.
class Rewriter {
 public:
  explicit Rewriter(Normalized& n) : n_(n), in_(n.text) { out_.reserve(in_.size() + 8); }

  std::string_view in() const noexcept { return in_; }
  // bytes stand for in()[begin, end); an empty range: inserted before begin, of its neighbour's
  // origin.
  void emit(std::string_view bytes, std::size_t begin, std::size_t end);
  void keep(std::size_t begin, std::size_t end);  // copies in()[begin, end)
  void drop(std::size_t begin, std::size_t end);  // leaves it out
  void trim_end(std::string_view suffix);  // takes back what was written, as often as it ends so
  void finish();                           // the result replaces the text

 private:
  Normalized& n_;
  std::string_view in_;
  std::string out_;
  std::vector<std::uint8_t> allowed_;
};

}  // namespace kvasir::text::tok
