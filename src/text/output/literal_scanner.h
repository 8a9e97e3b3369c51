// Finds fixed strings in a stream of text, leftmost first, then longest, whatever the cuts. Text
// that may still become a hit is held back. Linear in the text (the literals are few and short).
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvasir::text::out {

class LiteralScanner {
 public:
  explicit LiteralScanner(std::vector<std::string> literals);  // none of them empty

  struct Event {
    std::optional<std::size_t> hit;  // which literal; none: text
    std::string text;
  };

  void push(std::string_view text) { buffer_ += text; }
  // The next thing that is certain; at the end of the stream everything is.
  std::optional<Event> next(bool is_end);
  // What no event has covered yet; the scanner is empty afterwards.
  std::string take_rest();

 private:
  struct Match {
    std::optional<std::size_t> full;
    bool may_grow = false;
  };
  Match match_at(std::size_t at) const;

  std::vector<std::string> literals_;
  std::array<bool, 256> begins_{};  // bytes that some literal begins with
  std::string buffer_;
  std::size_t at_ = 0;
};

}  // namespace kvasir::text::out
