// Stop strings in a stream of text (TXT-60, 61): nothing of a stop string, and nothing after it, is
// ever emitted. The match that ends first wins, of those the longest; text that could still become
// a match is held back. One matcher is one stream: not for two threads at once. Linear in the text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvasir::text {

inline constexpr std::size_t kMaxStopStrings = 16;
inline constexpr std::size_t kMaxStopStringBytes = 1024;

class StopMatcher {
 public:
  // Errors: invalid_argument, when there are more than 16 strings or one has not 1..1024 bytes.
  static Result<StopMatcher> make(std::vector<std::string> stops);

  struct Step {
    std::string text;         // safe to show
    bool is_matched = false;  // a stop string is complete: the stream ends here
  };
  Step push(std::string_view text);  // after a match: empty, matched
  std::string finish();              // what was held back, when the stream ends without a match

  bool is_matched() const noexcept { return matched_ >= 0; }
  // Which stop string matched; valid after a match.
  std::string_view matched() const noexcept { return stops_[static_cast<std::size_t>(matched_)]; }

 private:
  explicit StopMatcher(std::vector<std::string> stops);
  struct Pattern {
    std::vector<std::uint32_t> borders;  // [n_bytes + 1]: longest proper border of each prefix
    std::uint32_t n_matched = 0;         // bytes of the pattern that the text so far ends with
  };

  std::vector<std::string> stops_;
  std::vector<Pattern> patterns_;
  std::string held_;
  int matched_ = -1;
};

}  // namespace kvasir::text
