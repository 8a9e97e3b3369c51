// How much of a text's end may be the beginning of something looked for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace kvasir::text::tok {

// Length of the longest suffix of text that is a proper prefix of pattern. O(|pattern|²) at worst,
// patterns are short.
inline std::size_t partial_match_bytes(std::string_view text, std::string_view pattern) {
  if (pattern.empty()) return 0;
  for (std::size_t n = std::min(text.size(), pattern.size() - 1); n > 0; --n) {
    if (pattern.starts_with(text.substr(text.size() - n))) return n;
  }
  return 0;
}

}  // namespace kvasir::text::tok
