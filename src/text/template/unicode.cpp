#include "text/template/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>

#include "base/utf8.h"
#include "text/template/special_casing.h"

namespace kvasir::text::tmpl {

namespace {

struct Interval {
  char32_t first, last;
};

template <std::size_t N>
bool in_any(const Interval (&intervals)[N], char32_t c) noexcept {
  return std::any_of(std::begin(intervals), std::end(intervals),
                     [c](const Interval& i) { return i.first <= c && c <= i.last; });
}

// Numeric_Type=Digit outside category Nd (UnicodeData.txt, field 7).
constexpr Interval kOtherDigits[] = {
    {0xb2, 0xb3},       {0xb9, 0xb9},       {0x1369, 0x1371},   {0x19da, 0x19da},
    {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
    {0x2474, 0x247c},   {0x2488, 0x2490},   {0x24ea, 0x24ea},   {0x24f5, 0x24fd},
    {0x24ff, 0x24ff},   {0x2776, 0x277e},   {0x2780, 0x2788},   {0x278a, 0x2792},
    {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a}};
// Other_Lowercase and Other_Uppercase (PropList.txt).
constexpr Interval kOtherLower[] = {
    {0xaa, 0xaa},       {0xba, 0xba},       {0x2b0, 0x2b8},     {0x2c0, 0x2c1},    {0x2e0, 0x2e4},
    {0x345, 0x345},     {0x37a, 0x37a},     {0x1d2c, 0x1d6a},   {0x1d78, 0x1d78},  {0x1d9b, 0x1dbf},
    {0x2071, 0x2071},   {0x207f, 0x207f},   {0x2090, 0x209c},   {0x2170, 0x217f},  {0x24d0, 0x24e9},
    {0x2c7c, 0x2c7d},   {0xa69c, 0xa69d},   {0xa770, 0xa770},   {0xa7f8, 0xa7f9},  {0xab5c, 0xab5f},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba}};
constexpr Interval kOtherUpper[] = {
    {0x2160, 0x216f}, {0x24b6, 0x24cf}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};

utf8proc_category_t category(char32_t c) noexcept {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

const SpecialCase* special_case(char32_t c) noexcept {
  const auto* found = std::lower_bound(kSpecialCases.begin(), kSpecialCases.end(), c,
                                       [](const SpecialCase& s, char32_t x) { return s.from < x; });
  return found != kSpecialCases.end() && found->from == c ? found : nullptr;
}

void append_all(std::string& out, const char32_t (&chars)[3]) {
  for (const char32_t c : chars) {
    if (c != 0) append_utf8(out, c);
  }
}

char32_t mapped(char32_t c, utf8proc_int32_t (*map)(utf8proc_int32_t)) {
  return static_cast<char32_t>(map(static_cast<utf8proc_int32_t>(c)));
}

}  // namespace

bool is_space(char32_t c) noexcept {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_line_end(char32_t c) noexcept {
  return (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool is_alpha(char32_t c) noexcept {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  const utf8proc_category_t cat = category(c);
  return cat >= UTF8PROC_CATEGORY_LU && cat <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) noexcept {
  if (c < 0x80) return c >= '0' && c <= '9';
  return category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(char32_t c) noexcept { return is_decimal(c) || in_any(kOtherDigits, c); }

bool is_numeric(char32_t c) noexcept {
  const utf8proc_category_t cat = category(c);
  return cat == UTF8PROC_CATEGORY_ND || cat == UTF8PROC_CATEGORY_NL || cat == UTF8PROC_CATEGORY_NO;
}

bool is_printable(char32_t c) noexcept {
  if (c < 0x7f) return c >= 0x20;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_lower(char32_t c) noexcept {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  return category(c) == UTF8PROC_CATEGORY_LL || in_any(kOtherLower, c);
}

bool is_upper(char32_t c) noexcept {
  if (c < 0x80) return c >= 'A' && c <= 'Z';
  return category(c) == UTF8PROC_CATEGORY_LU || in_any(kOtherUpper, c);
}

bool is_title(char32_t c) noexcept { return c >= 0x80 && category(c) == UTF8PROC_CATEGORY_LT; }

bool is_case_ignorable(char32_t c) noexcept {
  if (c < 0x80) return c == '\'' || c == '.' || c == ':' || c == '^' || c == '`';
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == 0xb7 || c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027;
  }
}

void append_upper(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  } else if (const SpecialCase* special = special_case(c)) {
    append_all(out, special->upper);
  } else {
    append_utf8(out, mapped(c, utf8proc_toupper));
  }
}

void append_title(std::string& out, char32_t c) {
  if (c < 0x80) {
    append_upper(out, c);
  } else if (const SpecialCase* special = special_case(c)) {
    append_all(out, special->title);
  } else {
    append_utf8(out, mapped(c, utf8proc_totitle));
  }
}

void append_lower(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  } else if (c == 0x130) {  // the only lower case of two characters
    out += "i\xcc\x87";
  } else {
    append_utf8(out, mapped(c, utf8proc_tolower));
  }
}

}  // namespace kvasir::text::tmpl
