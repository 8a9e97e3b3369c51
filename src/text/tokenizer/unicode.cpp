#include "text/tokenizer/unicode.h"

#include <utf8proc.h>

#include "base/utf8.h"

namespace kvasir::text::tok {
namespace {

utf8proc_category_t category(char32_t c) noexcept {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool in(char32_t c, char32_t lo, char32_t hi) noexcept { return c >= lo && c <= hi; }

}  // namespace

bool is_whitespace(char32_t c) noexcept {
  if (c < 0x80) return c == ' ' || in(c, 9, 13);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || in(c, 0x2000, 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_numeric(char32_t c) noexcept {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool is_mark(char32_t c) noexcept {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing(char32_t c) noexcept { return category(c) == UTF8PROC_CATEGORY_MN; }

bool is_punctuation(char32_t c) noexcept {
  if (c < 0x80)
    return in(c, 0x21, 0x2F) || in(c, 0x3A, 0x40) || in(c, 0x5B, 0x60) || in(c, 0x7B, 0x7E);
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

bool is_word(char32_t c) noexcept {
  if (c < 0x80) return in(c, '0', '9') || in(c, 'A', 'Z') || in(c, 'a', 'z') || c == '_';
  const auto k = category(c);
  if (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NL) return true;  // L, M, Nd, Nl
  if (k == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D) return true;
  // Symbols with the Alphabetic property: circled, squared and parenthesised Latin letters.
  return in(c, 0x24B6, 0x24E9) || in(c, 0x1F130, 0x1F149) || in(c, 0x1F150, 0x1F169) ||
         in(c, 0x1F170, 0x1F189);
}

bool is_control(char32_t c) noexcept {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CO;
}

bool is_cjk_ideograph(char32_t c) noexcept {
  // The last supplementary block starts at 2B920 in the reference implementation too.
  return in(c, 0x4E00, 0x9FFF) || in(c, 0x3400, 0x4DBF) || in(c, 0x20000, 0x2A6DF) ||
         in(c, 0x2A700, 0x2B73F) || in(c, 0x2B740, 0x2B81F) || in(c, 0x2B920, 0x2CEAF) ||
         in(c, 0xF900, 0xFAFF) || in(c, 0x2F800, 0x2FA1F);
}

int lower(char32_t c, char32_t out[2]) noexcept {
  if (c == 0x130) {  // the only unconditional lower case of two characters
    out[0] = 'i';
    out[1] = 0x307;
    return 2;
  }
  out[0] = static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
  return 1;
}

Char first_char(std::string_view text) noexcept {
  const auto b = static_cast<unsigned char>(text[0]);
  if (b < 0x80) return {b, 1};
  const DecodedChar c = decode_utf8(text);
  return {c.code_point, c.n_bytes};
}

Char last_char(std::string_view text) noexcept {
  std::size_t at = text.size() - 1;
  while (at > 0 && text.size() - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80)
    --at;
  return first_char(text.substr(at));
}

}  // namespace kvasir::text::tok
