// What str methods and text filters share. Results keep the origins of the characters they are made
// from.
#pragma once

#include <cstdint>
#include <optional>

#include "text/template/interp.h"

namespace kvasir::text::tmpl {

enum class Side : std::uint8_t { left, right, both };
enum class Casing : std::uint8_t {
  lower,
  upper,
  swap,
  title,
  capitalize,
  words
};  // words: the title filter's rule

Value strip(Interp& in, Str& s, const Str* chars, Side side);  // chars null: white space
Value change_case(Interp& in, const Str& s, Casing casing);
Value replace(
    Interp& in, const Str& s, const Str& from, const Str& to, std::int64_t count);  // < 0: all
Value split(Interp& in, Str& s, const Str* separator, std::int64_t max, bool from_right);
Value split_lines(Interp& in, const Str& s, bool keep_ends);
Value partition(Interp& in, const Str& s, const Str& separator, bool from_right);
// str() of the items of `items`, between separators.
Value join(Interp& in, const Str& separator, Iter& items, bool only_strings);
Value pad(Interp& in,
          const Str& s,
          std::int64_t width,
          std::string_view fill,
          std::int64_t left_of_odd,
          Side text_at);

}  // namespace kvasir::text::tmpl
