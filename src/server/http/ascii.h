// ASCII helpers of the HTTP grammar: locale-free, any thread.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace kvasir::server {

constexpr char ascii_lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

inline std::string to_lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), ascii_lower);
  return out;
}

constexpr bool equals_ignoring_case(std::string_view a, std::string_view b) noexcept {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return ascii_lower(x) == ascii_lower(y); });
}

constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
constexpr bool is_visible(char c) noexcept { return c > ' ' && c < '\x7f'; }

// RFC 9110 §5.6.2: what names of headers and methods are made of.
constexpr bool is_token_char(char c) noexcept {
  return is_visible(c) && std::string_view("\"(),/:;<=>?@[\\]{}").find(c) == std::string_view::npos;
}

constexpr std::string_view trim(std::string_view text) noexcept {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace kvasir::server
