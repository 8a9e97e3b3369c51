#include "text/template/unescape.h"

#include <cstdint>
#include <optional>

#include "base/utf8.h"

namespace kvasir::text::tmpl {

namespace {

std::optional<char32_t> hex_digits(std::string_view s) {
  char32_t value = 0;
  for (const char c : s) {
    const char lower = static_cast<char>(c | 0x20);
    if (c >= '0' && c <= '9') {
      value = value * 16 + static_cast<char32_t>(c - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      value = value * 16 + static_cast<char32_t>(lower - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  return value;
}

char simple_escape(char c) {
  switch (c) {
    case 'a':
      return '\a';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'v':
      return '\v';
    case '\\':
    case '\'':
    case '"':
      return c;
    default:
      return '\0';
  }
}

// \x, \u and \U at body[at] (the letter); appends the character and returns the bytes used, 0 =
// malformed.
std::size_t hex_escape(std::string_view body, std::size_t at, std::string& out) {
  const std::size_t n = body[at] == 'x' ? 2 : body[at] == 'u' ? 4 : 8;
  if (body.size() - at - 1 < n) return 0;
  const auto code = hex_digits(body.substr(at + 1, n));
  if (!code || *code > 0x10ffff) return 0;
  append_utf8(out, *code);
  return n + 1;
}

std::size_t octal_escape(std::string_view body, std::size_t at, std::string& out) {
  char32_t code = 0;
  std::size_t n = 0;
  while (n < 3 && at + n < body.size() && body[at + n] >= '0' && body[at + n] <= '7') {
    code = code * 8 + static_cast<char32_t>(body[at + n] - '0');
    ++n;
  }
  append_utf8(out, code);
  return n;
}

}  // namespace

Result<std::string> unescape(std::string_view body) {
  std::string out;
  out.reserve(body.size());
  for (std::size_t at = 0; at < body.size();) {
    if (body[at] != '\\' || at + 1 == body.size()) {
      out += body[at++];
      continue;
    }
    const char c = body[++at];
    if (const char simple = simple_escape(c); simple != '\0') {
      out += simple;
      ++at;
    } else if (c == '\n') {
      ++at;
    } else if (c >= '0' && c <= '7') {
      at += octal_escape(body, at, out);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const std::size_t used = hex_escape(body, at, out);
      if (used == 0) return invalid(std::string("malformed \\") + c + " escape in a string");
      at += used;
    } else if (c == 'N') {
      return invalid("\\N escapes are not supported");
    } else {
      out += '\\';
    }
  }
  return out;
}

}  // namespace kvasir::text::tmpl
