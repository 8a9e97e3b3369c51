// Methods of str (TXT-25).
#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "text/template/escape.h"
#include "text/template/format.h"
#include "text/template/operators.h"
#include "text/template/registry.h"
#include "text/template/text_ops.h"
#include "text/template/unicode.h"

namespace kvasir::text::tmpl {

namespace {

// An argument that must be a string or (when absent or none) null.
bool optional_text(Interp& in, const Value& v, Str*& out) {
  out = nullptr;
  if (v.is(Kind::none)) return true;
  if (v.is_string()) {
    out = v.string;
    return true;
  }
  in.fail("expected str instance, " + std::string(type_name(v)) + " found");
  return false;
}

bool required_int(Interp& in, const Value& v, std::int64_t& out) {
  if (!v.is_int()) {
    in.fail("'" + std::string(type_name(v)) + "' object cannot be interpreted as an integer");
    return false;
  }
  out = v.as_int();
  return true;
}

template <Side kSide>
Value strip_method(Interp& in, const Value& self, const Args& args) {
  Value chars = Value::none();
  Str* set = nullptr;
  if (!bind_args(in, "strip", args, {"chars"}, 0, &chars)) return Value::error();
  if (!optional_text(in, chars, set)) return Value::error();
  return strip(in, *self.string, set, kSide);
}

template <Casing kCasing>
Value case_method(Interp& in, const Value& self, const Args& args) {
  if (!bind_args(in, "str method", args, {}, 0, nullptr)) return Value::error();
  return change_case(in, *self.string, kCasing);
}

template <bool kFromRight>
Value split_method(Interp& in, const Value& self, const Args& args) {
  Value bound[2] = {Value::none(), Value::of(std::int64_t{-1})};
  Str* separator = nullptr;
  std::int64_t max = -1;
  if (!bind_args(in, "split", args, {"sep", "maxsplit"}, 0, bound)) return Value::error();
  if (!optional_text(in, bound[0], separator) || !required_int(in, bound[1], max)) {
    return Value::error();
  }
  return split(in, *self.string, separator, max, kFromRight);
}

template <bool kFromRight>
Value partition_method(Interp& in, const Value& self, const Args& args) {
  Value separator;
  if (!bind_args(in, "partition", args, {"sep"}, 1, &separator)) return Value::error();
  if (!separator.is_string())
    return in.fail("must be str, not " + std::string(type_name(separator)));
  return partition(in, *self.string, *separator.string, kFromRight);
}

Value splitlines_method(Interp& in, const Value& self, const Args& args) {
  Value keep = Value::of(false);
  if (!bind_args(in, "splitlines", args, {"keepends"}, 0, &keep)) return Value::error();
  return split_lines(in, *self.string, in.truth(keep));
}

// A start and end in characters, as in s.find(x, start, end), as bytes.
bool window(
    Interp& in, Str& s, const Value& start, const Value& end, std::size_t& from, std::size_t& to) {
  const std::int64_t n = char_count(s);
  const auto clamp = [&](const Value& v, std::int64_t other) {
    if (v.is(Kind::none)) return other;
    const std::int64_t i = v.as_int();
    return std::clamp<std::int64_t>(i < 0 ? i + n : i, 0, n);
  };
  const auto fits = [](const Value& v) { return v.is(Kind::none) || v.is_int(); };
  if (!fits(start) || !fits(end)) {
    in.fail("slice indices must be integers or None or have an __index__ method");
    return false;
  }
  // Beyond the end is no empty window: "".find("", 1) is -1.
  const bool starts_outside = start.is_int() && start.as_int() > n;
  from = starts_outside ? s.bytes.size() + 1 : char_to_byte(s.bytes, clamp(start, 0));
  to = char_to_byte(s.bytes, clamp(end, n));
  return in.work(static_cast<std::int64_t>(s.bytes.size()));
}

template <bool kAtEnd>
Value startswith_method(Interp& in, const Value& self, const Args& args) {
  Value bound[3] = {Value::none(), Value::none(), Value::none()};
  if (!bind_args(in, "startswith", args, {"prefix", "start", "end"}, 1, bound))
    return Value::error();
  std::size_t from = 0, to = 0;
  if (!window(in, *self.string, bound[1], bound[2], from, to)) return Value::error();
  const bool is_empty_window = from > to;
  const std::string_view text = is_empty_window ? "" : self.text().substr(from, to - from);
  const auto matches = [&](const Value& affix) {
    if (is_empty_window) return false;
    return kAtEnd ? text.ends_with(affix.text()) : text.starts_with(affix.text());
  };
  const std::string name = kAtEnd ? "endswith" : "startswith";
  if (bound[0].is_string()) return Value::of(matches(bound[0]));
  if (!bound[0].is(Kind::tuple)) {
    return in.fail(name + " first arg must be str or a tuple of str, not " +
                   std::string(type_name(bound[0])));
  }
  for (const Value& affix : bound[0].list->items) {
    if (!affix.is_string()) {
      return in.fail("tuple for " + name + " must only contain str, not " +
                     std::string(type_name(affix)));
    }
    if (matches(affix)) return Value::of(true);
  }
  return Value::of(false);
}

enum class Search { find, rfind, index, rindex };
template <Search kSearch>
Value find_method_of(Interp& in, const Value& self, const Args& args) {
  Value bound[3] = {Value::none(), Value::none(), Value::none()};
  if (!bind_args(in, "find", args, {"sub", "start", "end"}, 1, bound)) return Value::error();
  if (!bound[0].is_string()) return in.fail("must be str, not " + std::string(type_name(bound[0])));
  std::size_t from = 0, to = 0;
  if (!window(in, *self.string, bound[1], bound[2], from, to)) return Value::error();
  std::size_t at = std::string_view::npos;
  if (from <= to) {
    const std::string_view text = self.text().substr(from, to - from);
    constexpr bool kBackward = kSearch == Search::rfind || kSearch == Search::rindex;
    at = kBackward ? text.rfind(bound[0].text()) : find_bytes(text, bound[0].text());
  }
  if (at != std::string_view::npos) return Value::of(count_chars(self.text().substr(0, from + at)));
  if (kSearch == Search::index || kSearch == Search::rindex) return in.fail("substring not found");
  return Value::of(std::int64_t{-1});
}

Value count_method(Interp& in, const Value& self, const Args& args) {
  Value bound[3] = {Value::none(), Value::none(), Value::none()};
  if (!bind_args(in, "count", args, {"sub", "start", "end"}, 1, bound)) return Value::error();
  if (!bound[0].is_string()) return in.fail("must be str, not " + std::string(type_name(bound[0])));
  std::size_t from = 0, to = 0;
  if (!window(in, *self.string, bound[1], bound[2], from, to)) return Value::error();
  if (from > to) return Value::of(std::int64_t{0});
  const std::string_view text = self.text().substr(from, to - from);
  const std::string_view needle = bound[0].text();
  if (needle.empty()) return Value::of(count_chars(text) + 1);
  std::int64_t n = 0;
  for (std::size_t at = find_bytes(text, needle); at != text.npos;
       at = find_bytes(text, needle, at + needle.size())) {
    ++n;
  }
  return Value::of(n);
}

Value replace_method(Interp& in, const Value& self, const Args& args) {
  Value bound[3] = {Value{}, Value{}, Value::of(std::int64_t{-1})};
  std::int64_t count = -1;
  if (!bind_args(in, "replace", args, {"old", "new", "count"}, 2, bound)) return Value::error();
  if (!bound[0].is_string() || !bound[1].is_string()) {
    const Value& wrong = bound[0].is_string() ? bound[1] : bound[0];
    return in.fail("replace() argument must be str, not " + std::string(type_name(wrong)));
  }
  if (!required_int(in, bound[2], count)) return Value::error();
  return replace(in, *self.string, *bound[0].string, *bound[1].string, count);
}

Value join_method(Interp& in, const Value& self, const Args& args) {
  Value items;
  if (!bind_args(in, "join", args, {"iterable"}, 1, &items)) return Value::error();
  Iter* source = in.iterate(items);
  return source == nullptr ? Value::error()
                           : join(in, *self.string, *source, /*only_strings=*/true);
}

Value format_method(Interp& in, const Value& self, const Args& args) {
  return brace_format(in, *self.string, args);
}

template <Side kTextAt>
Value pad_method(Interp& in, const Value& self, const Args& args) {
  Value bound[2];
  bound[1] = in.str(" ");
  std::int64_t width = 0;
  if (!bind_args(in, "pad", args, {"width", "fillchar"}, 1, bound)) return Value::error();
  if (!required_int(in, bound[0], width)) return Value::error();
  if (!bound[1].is_string() || char_count(*bound[1].string) != 1) {
    return in.fail("The fill character must be exactly one character long");
  }
  return pad(in, *self.string, width, bound[1].text(), width, kTextAt);
}

Value zfill_method(Interp& in, const Value& self, const Args& args) {
  Value bound;
  std::int64_t width = 0;
  if (!bind_args(in, "zfill", args, {"width"}, 1, &bound) || !required_int(in, bound, width)) {
    return Value::error();
  }
  const std::string_view text = self.text();
  const bool has_sign = text.starts_with('-') || text.starts_with('+');
  if (!has_sign) return pad(in, *self.string, width, "0", 0, Side::right);
  Str* sign = sub_str(in.arena(), *self.string, 0, 1);
  Str* digits = sub_str(in.arena(), *self.string, 1, text.size());
  const Value padded = pad(in, *digits, width - 1, "0", 0, Side::right);
  return padded.is_error() ? padded : Value::of(concat(in.arena(), *sign, *padded.string));
}

template <bool kPrefix>
Value remove_affix(Interp& in, const Value& self, const Args& args) {
  Value affix;
  if (!bind_args(in, "removeprefix", args, {"prefix"}, 1, &affix)) return Value::error();
  if (!affix.is_string())
    return in.fail("argument must be str, not " + std::string(type_name(affix)));
  const std::string_view text = self.text();
  const std::size_t n = affix.text().size();
  if (kPrefix ? !text.starts_with(affix.text()) : !text.ends_with(affix.text())) return self;
  return Value::of(kPrefix ? sub_str(in.arena(), *self.string, n, text.size())
                           : sub_str(in.arena(), *self.string, 0, text.size() - n));
}

using CharTest = bool (*)(char32_t);
template <CharTest kTest, bool kEmpty>
Value all_chars(Interp& in, const Value& self, const Args& args) {
  if (!bind_args(in, "str method", args, {}, 0, nullptr)) return Value::error();
  const std::string_view text = self.text();
  if (text.empty()) return Value::of(kEmpty);
  if (!in.work(static_cast<std::int64_t>(text.size()) * 2)) return Value::error();
  for (std::size_t at = 0; at < text.size();) {
    const DecodedChar c = decode_utf8(text.substr(at));
    if (!kTest(c.code_point)) return Value::of(false);
    at += c.n_bytes;
  }
  return Value::of(true);
}

bool is_alnum(char32_t c) { return is_alpha(c) || is_decimal(c) || is_digit(c) || is_numeric(c); }
bool is_ascii_char(char32_t c) { return c < 0x80; }

bool has_case(std::string_view text, bool wants_lower) {
  bool found = false;
  for (std::size_t at = 0; at < text.size();) {
    const DecodedChar c = decode_utf8(text.substr(at));
    const bool wrong = wants_lower ? is_upper(c.code_point) : is_lower(c.code_point);
    if (wrong || is_title(c.code_point)) return false;
    found |= wants_lower ? is_lower(c.code_point) : is_upper(c.code_point);
    at += c.n_bytes;
  }
  return found;
}

template <bool kLower>
Value iscase_method(Interp& in, const Value& self, const Args& args) {
  if (!bind_args(in, "str method", args, {}, 0, nullptr)) return Value::error();
  if (!in.work(static_cast<std::int64_t>(self.text().size()) * 2)) return Value::error();
  return Value::of(has_case(self.text(), kLower));
}

Value istitle_method(Interp& in, const Value& self, const Args& args) {
  if (!bind_args(in, "istitle", args, {}, 0, nullptr)) return Value::error();
  bool found = false, after_cased = false;
  for (std::size_t at = 0; at < self.text().size();) {
    const DecodedChar c = decode_utf8(self.text().substr(at));
    at += c.n_bytes;
    const bool upper = is_upper(c.code_point) || is_title(c.code_point);
    const bool lower = is_lower(c.code_point);
    if ((upper && after_cased) || (lower && !after_cased)) return Value::of(false);
    after_cased = upper || lower;
    found |= after_cased;
  }
  return in.work(static_cast<std::int64_t>(self.text().size())) ? Value::of(found) : Value::error();
}

constexpr std::array kMethods = {
    FilterDef{"capitalize", case_method<Casing::capitalize>},
    FilterDef{"center", pad_method<Side::both>},
    FilterDef{"count", count_method},
    FilterDef{"endswith", startswith_method<true>},
    FilterDef{"find", find_method_of<Search::find>},
    FilterDef{"format", format_method},
    FilterDef{"index", find_method_of<Search::index>},
    FilterDef{"isalnum", all_chars<is_alnum, false>},
    FilterDef{"isalpha", all_chars<is_alpha, false>},
    FilterDef{"isascii", all_chars<is_ascii_char, true>},
    FilterDef{"isdecimal", all_chars<is_decimal, false>},
    FilterDef{"isdigit", all_chars<is_digit, false>},
    FilterDef{"islower", iscase_method<true>},
    FilterDef{"isnumeric", all_chars<is_numeric, false>},
    FilterDef{"isprintable", all_chars<is_printable, true>},
    FilterDef{"isspace", all_chars<is_space, false>},
    FilterDef{"istitle", istitle_method},
    FilterDef{"isupper", iscase_method<false>},
    FilterDef{"join", join_method},
    FilterDef{"ljust", pad_method<Side::left>},
    FilterDef{"lower", case_method<Casing::lower>},
    FilterDef{"lstrip", strip_method<Side::left>},
    FilterDef{"partition", partition_method<false>},
    FilterDef{"removeprefix", remove_affix<true>},
    FilterDef{"removesuffix", remove_affix<false>},
    FilterDef{"replace", replace_method},
    FilterDef{"rfind", find_method_of<Search::rfind>},
    FilterDef{"rindex", find_method_of<Search::rindex>},
    FilterDef{"rjust", pad_method<Side::right>},
    FilterDef{"rpartition", partition_method<true>},
    FilterDef{"rsplit", split_method<true>},
    FilterDef{"rstrip", strip_method<Side::right>},
    FilterDef{"split", split_method<false>},
    FilterDef{"splitlines", splitlines_method},
    FilterDef{"startswith", startswith_method<false>},
    FilterDef{"strip", strip_method<Side::both>},
    FilterDef{"swapcase", case_method<Casing::swap>},
    FilterDef{"title", case_method<Casing::title>},
    FilterDef{"upper", case_method<Casing::upper>},
    FilterDef{"zfill", zfill_method},
};

}  // namespace

Native find_string_method(std::string_view name) {
  const auto* found = std::find_if(kMethods.begin(), kMethods.end(),
                                   [name](const FilterDef& m) { return m.name == name; });
  return found == kMethods.end() ? nullptr : found->apply;
}

}  // namespace kvasir::text::tmpl
