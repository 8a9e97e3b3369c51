// Cuts a template into tokens with Jinja's whitespace rules: trim_blocks and lstrip_blocks on,
// keep_trailing_newline off (TXT-20), `-` and `+` markers (TXT-21).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvasir::text::tmpl {

enum class TokenKind : std::uint8_t {
  data,
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  floating,
  op,
  end
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::uint32_t line = 1;
  std::string text;  // data; a name; a string's value; a number's digits; an operator
};

// Newlines as \n, one trailing newline dropped, malformed UTF-8 replaced.
std::string normalize_source(std::string_view source);
// source: normalised. Errors name the line. The last token is `end`.
Result<std::vector<Token>> tokenize(std::string_view source);
Error syntax_error(std::string_view message, std::uint32_t line);

}  // namespace kvasir::text::tmpl
