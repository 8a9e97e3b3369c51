// Character classes and case as the reference tokenizers see them, on top of utf8proc.
#pragma once

#include <cstddef>
#include <string_view>

namespace kvasir::text::tok {

bool is_whitespace(char32_t c) noexcept;   // Unicode White_Space
bool is_numeric(char32_t c) noexcept;      // category N
bool is_mark(char32_t c) noexcept;         // category M
bool is_nonspacing(char32_t c) noexcept;   // category Mn
bool is_punctuation(char32_t c) noexcept;  // category P, or any ASCII punctuation
bool is_word(char32_t c) noexcept;         // \w: alphabetic, mark, decimal digit, connector, joiner
bool is_control(char32_t c) noexcept;      // categories Cc, Cf, Co
bool is_cjk_ideograph(char32_t c) noexcept;

// Full, context-free lower case: at most two code points. Returns how many.
int lower(char32_t c, char32_t out[2]) noexcept;

// First character of valid UTF-8 (malformed input gives U+FFFD, one byte at a time at worst).
struct Char {
  char32_t code_point;
  std::size_t n_bytes;
};
Char first_char(std::string_view text) noexcept;  // text not empty
Char last_char(std::string_view text) noexcept;   // text not empty

}  // namespace kvasir::text::tok
