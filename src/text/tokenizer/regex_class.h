// Character classes of Oniguruma patterns, [...] with nested classes and &&, as PCRE2 class text.
#pragma once

#include <string>
#include <string_view>

#include "text/tokenizer/regex_syntax.h"

namespace kvasir::text::tok {

// Class members with one meaning in both libraries.
inline constexpr std::string_view kSpaceItems = R"(\x{9}-\x{D}\x{85}\p{Z})";
inline constexpr std::string_view kWordItems = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// Outside a class Oniguruma counts the Latin-1 superscripts and fractions as word characters too.
inline constexpr std::string_view kWordItemsAlone = R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";
inline constexpr std::string_view kHexItems = "0-9A-Fa-f";

// An escape outside or inside a class that stands for a set: its members, and whether it means all
// others.
struct ShorthandSet {
  std::string items;
  bool is_negated = false;
};
// Reads \s, \p{..} and so on at `at` (on the backslash) and moves past it. False: another kind of
// escape.
bool read_shorthand(std::string_view pattern, std::size_t& at, ShorthandSet& out);

// Reads the class at `at` (on its '[') and moves past its ']'. Gives a whole PCRE2 class with
// brackets.
Result<std::string> read_class(std::string_view pattern,
                               std::size_t& at,
                               const ClassEvaluator& evaluate);

}  // namespace kvasir::text::tok
