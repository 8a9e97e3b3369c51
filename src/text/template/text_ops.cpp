#include "text/template/text_ops.h"

#include <algorithm>
#include <vector>

#include "base/utf8.h"
#include "text/template/operators.h"
#include "text/template/print.h"
#include "text/template/unicode.h"

namespace kvasir::text::tmpl {

namespace {

bool contains_char(std::string_view chars, char32_t c) {
  for (std::size_t at = 0; at < chars.size();) {
    const DecodedChar candidate = decode_utf8(chars.substr(at));
    if (candidate.code_point == c) return true;
    at += candidate.n_bytes;
  }
  return false;
}

// Start of the character that ends at `end`.
std::size_t char_before(std::string_view s, std::size_t end) {
  std::size_t at = end - 1;
  for (int i = 0; i < 3 && at > 0 && (static_cast<unsigned char>(s[at]) & 0xc0) == 0x80; ++i) --at;
  return at + decode_utf8(s.substr(at)).n_bytes == end ? at : end - 1;
}

Value part(Interp& in, const Str& s, std::size_t begin, std::size_t end) {
  return Value::of(sub_str(in.arena(), s, begin, end));
}

// Greek capital sigma at the end of a word becomes the final form (Unicode's Final_Sigma
// condition).
bool is_final_sigma(std::string_view s, std::size_t at, std::size_t end) {
  const auto is_cased = [](char32_t c) { return is_lower(c) || is_upper(c) || is_title(c); };
  bool has_before = false;
  for (std::size_t i = at; i > 0;) {
    i = char_before(s, i);
    const char32_t c = decode_utf8(s.substr(i)).code_point;
    if (is_case_ignorable(c)) continue;
    has_before = is_cased(c);
    break;
  }
  if (!has_before) return false;
  for (std::size_t i = end; i < s.size();) {
    const DecodedChar c = decode_utf8(s.substr(i));
    i += c.n_bytes;
    if (!is_case_ignorable(c.code_point)) return !is_cased(c.code_point);
  }
  return true;
}

// One byte stays one byte, so the origins are those of s.
Value change_ascii_case(Interp& in, const Str& s, bool to_upper) {
  const std::size_t n = s.bytes.size();
  // Looked through for is_ascii, then written.
  if (!in.can_take(n) || !in.work(static_cast<std::int64_t>(n) * 3)) return Value::error();
  char* bytes = in.arena().bytes(n + 1);
  std::transform(s.bytes.begin(), s.bytes.end(), bytes, [to_upper](char c) {
    const char first = to_upper ? 'a' : 'A';
    return static_cast<unsigned char>(c - first) < 26 ? static_cast<char>(c ^ 0x20) : c;
  });
  Str* changed = in.arena().make<Str>(s);
  changed->bytes = {bytes, n};
  return Value::of(changed);
}

bool begins_word(char32_t before) {  // of the title filter: "foo-bar (baz" → "Foo-Bar (Baz"
  return is_space(before) || before == '-' || before == '(' || before == '{' || before == '[' ||
         before == '<';
}

Value split_at_space(Interp& in, const Str& s, std::int64_t max) {
  List* parts = in.list();
  std::size_t at = 0;
  while (true) {
    while (at < s.bytes.size()) {
      const DecodedChar c = decode_utf8(s.bytes.substr(at));
      if (!is_space(c.code_point)) break;
      at += c.n_bytes;
    }
    if (at == s.bytes.size() || !in.tick(2)) break;
    if (max >= 0 && static_cast<std::int64_t>(parts->items.size()) == max) {
      parts->items.push_back(part(in, s, at, s.bytes.size()));
      break;
    }
    const std::size_t begin = at;
    while (at < s.bytes.size()) {
      const DecodedChar c = decode_utf8(s.bytes.substr(at));
      if (is_space(c.code_point)) break;
      at += c.n_bytes;
    }
    parts->items.push_back(part(in, s, begin, at));
  }
  return in.failed() ? Value::error() : Value::of(parts);
}

Value rsplit_at_space(Interp& in, Str& s, std::int64_t max) {
  List* parts = in.list();
  std::size_t end = s.bytes.size();
  while (true) {
    while (end > 0) {
      const std::size_t before = char_before(s.bytes, end);
      if (!is_space(decode_utf8(s.bytes.substr(before)).code_point)) break;
      end = before;
    }
    if (end == 0 || !in.tick()) break;
    if (static_cast<std::int64_t>(parts->items.size()) == max) {
      parts->items.push_back(part(in, s, 0, end));
      break;
    }
    std::size_t begin = end;
    while (begin > 0) {
      const std::size_t before = char_before(s.bytes, begin);
      if (is_space(decode_utf8(s.bytes.substr(before)).code_point)) break;
      begin = before;
    }
    parts->items.push_back(part(in, s, begin, end));
    end = begin;
  }
  std::reverse(parts->items.begin(), parts->items.end());
  return in.failed() ? Value::error() : Value::of(parts);
}

}  // namespace

Value strip(Interp& in, Str& s, const Str* chars, Side side) {
  const auto drops = [&](char32_t c) {
    return chars == nullptr ? is_space(c) : contains_char(chars->bytes, c);
  };
  const auto cost = static_cast<std::int64_t>(chars == nullptr ? 1 : chars->bytes.size());
  std::size_t begin = 0, end = s.bytes.size();
  while (side != Side::right && begin < end) {
    const DecodedChar c = decode_utf8(s.bytes.substr(begin));
    if (!drops(c.code_point)) break;
    begin += c.n_bytes;
    if (!in.work(cost)) return Value::error();
  }
  while (side != Side::left && end > begin) {
    const std::size_t before = char_before(s.bytes, end);
    if (!drops(decode_utf8(s.bytes.substr(before)).code_point)) break;
    end = before;
    if (!in.work(cost)) return Value::error();
  }
  if (begin == 0 && end == s.bytes.size()) return Value::of(&s);
  return part(in, s, begin, end);
}

Value change_case(Interp& in, const Str& s, Casing casing) {
  const bool is_simple = casing == Casing::lower || casing == Casing::upper;
  if (is_simple && is_ascii(s.bytes)) return change_ascii_case(in, s, casing == Casing::upper);
  if (!in.work(static_cast<std::int64_t>(s.bytes.size()) * 40)) return Value::error();
  Builder out;
  char32_t previous = 0;
  bool is_first = true;
  for (std::size_t at = 0; at < s.bytes.size();) {
    const DecodedChar c = decode_utf8(s.bytes.substr(at));
    const std::size_t end = at + c.n_bytes;
    const bool starts_word = casing == Casing::title
                                 ? !(is_lower(previous) || is_upper(previous) || is_title(previous))
                             : casing == Casing::words ? is_first || begins_word(previous)
                                                       : is_first;
    const bool to_lower = casing == Casing::lower ||
                          (casing == Casing::swap && is_upper(c.code_point)) ||
                          (casing >= Casing::title && !starts_word);
    const bool to_upper = casing == Casing::upper || (casing == Casing::words && starts_word) ||
                          (casing == Casing::swap && is_lower(c.code_point));
    std::string mapped;
    if (to_lower && c.code_point == 0x3a3) {
      append_utf8(mapped, is_final_sigma(s.bytes, at, end) ? 0x3c2 : 0x3c3);
    } else if (to_lower) {
      append_lower(mapped, c.code_point);
    } else if (to_upper) {
      append_upper(mapped, c.code_point);
    } else if (casing == Casing::swap) {
      mapped = s.bytes.substr(at, c.n_bytes);
    } else {
      append_title(mapped, c.code_point);
    }
    out.append(mapped, s.is_content_at(at));
    previous = c.code_point;
    is_first = false;
    at = end;
  }
  const Value result = in.finish(out);
  if (!result.is_error()) result.string->markup = s.markup;
  return result;
}

Value replace(Interp& in, const Str& s, const Str& from, const Str& to, std::int64_t count) {
  if (!in.work(static_cast<std::int64_t>(s.bytes.size()))) return Value::error();
  Builder out;
  std::size_t plain = 0;
  std::size_t at = 0;
  for (; count != 0; --count) {
    const std::size_t found = find_bytes(s.bytes, from.bytes, at);
    if (found == s.bytes.npos) break;
    out.append(s, plain, found);
    out.append(to);
    plain = found + from.bytes.size();
    at = plain;
    if (from.bytes.empty()) {  // between all characters
      if (found == s.bytes.size()) break;
      at += decode_utf8(s.bytes.substr(found)).n_bytes;
    }
    if (out.overflowed()) return in.fail_limits();
  }
  out.append(s, plain, s.bytes.size());
  const Value result = in.finish(out);
  if (!result.is_error()) result.string->markup = s.markup;
  return result;
}

Value split(Interp& in, Str& s, const Str* separator, std::int64_t max, bool from_right) {
  if (!in.work(static_cast<std::int64_t>(s.bytes.size()))) return Value::error();
  if (separator == nullptr) {
    return from_right && max >= 0 ? rsplit_at_space(in, s, max) : split_at_space(in, s, max);
  }
  const std::string_view needle = separator->bytes;
  if (needle.empty()) return in.fail("empty separator");
  List* parts = in.list();
  std::size_t begin = 0, end = s.bytes.size();
  if (!from_right || max < 0) {
    for (std::int64_t left = max; left != 0; --left) {
      const std::size_t found = find_bytes(s.bytes, needle, begin);
      if (found == s.bytes.npos || !in.tick(2)) break;
      parts->items.push_back(part(in, s, begin, found));
      begin = found + needle.size();
    }
    parts->items.push_back(part(in, s, begin, end));
    return in.failed() ? Value::error() : Value::of(parts);
  }
  for (std::int64_t left = max; left != 0; --left) {
    const std::size_t found = s.bytes.substr(0, end).rfind(needle);
    const std::size_t scanned = end - (found == s.bytes.npos ? 0 : found);
    // rfind goes byte by byte and compares the needle at each place.
    const std::size_t cost = std::clamp<std::size_t>(needle.size(), 24, 64);
    if (!in.work(static_cast<std::int64_t>(scanned * cost))) break;
    if (found == s.bytes.npos || !in.tick()) break;
    parts->items.push_back(part(in, s, found + needle.size(), end));
    end = found;
  }
  parts->items.push_back(part(in, s, 0, end));
  std::reverse(parts->items.begin(), parts->items.end());
  return in.failed() ? Value::error() : Value::of(parts);
}

Value split_lines(Interp& in, const Str& s, bool keep_ends) {
  if (!in.work(static_cast<std::int64_t>(s.bytes.size()) * 2)) return Value::error();
  List* lines = in.list();
  std::size_t begin = 0;
  for (std::size_t at = 0; at < s.bytes.size();) {
    const DecodedChar c = decode_utf8(s.bytes.substr(at));
    std::size_t next = at + c.n_bytes;
    if (is_line_end(c.code_point)) {
      if (c.code_point == '\r' && next < s.bytes.size() && s.bytes[next] == '\n') ++next;
      if (!in.tick(2)) return Value::error();
      lines->items.push_back(part(in, s, begin, keep_ends ? next : at));
      begin = next;
    }
    at = next;
  }
  if (begin < s.bytes.size()) lines->items.push_back(part(in, s, begin, s.bytes.size()));
  return Value::of(lines);
}

Value partition(Interp& in, const Str& s, const Str& separator, bool from_right) {
  if (separator.bytes.empty()) return in.fail("empty separator");
  if (!in.work(static_cast<std::int64_t>(s.bytes.size()))) return Value::error();
  const std::size_t found =
      from_right ? s.bytes.rfind(separator.bytes) : find_bytes(s.bytes, separator.bytes);
  List* parts = in.list();
  const std::size_t n = s.bytes.size();
  if (found != s.bytes.npos) {
    const std::size_t after = found + separator.bytes.size();
    parts->items.assign({part(in, s, 0, found), part(in, s, found, after), part(in, s, after, n)});
  } else if (from_right) {
    parts->items.assign({part(in, s, 0, 0), part(in, s, 0, 0), part(in, s, 0, n)});
  } else {
    parts->items.assign({part(in, s, 0, n), part(in, s, 0, 0), part(in, s, 0, 0)});
  }
  return Value::tuple(parts);
}

Value join(Interp& in, const Str& separator, Iter& items, bool only_strings) {
  Builder out;
  bool is_first = true;
  std::int64_t index = 0;
  for (Value item; items.next(in, item); ++index) {
    if (only_strings && !item.is_string()) {
      return in.fail("sequence item " + std::to_string(index) + ": expected str instance, " +
                     std::string(type_name(item)) + " found");
    }
    if (!is_first) out.append(separator);
    is_first = false;
    if (!append_str(in, out, item)) return Value::error();
  }
  return in.failed() ? Value::error() : in.finish(out);
}

Value pad(Interp& in,
          const Str& s,
          std::int64_t width,
          std::string_view fill,
          std::int64_t left_of_odd,
          Side text_at) {
  const std::int64_t missing = width - count_chars(s.bytes);
  if (missing <= 0) return part(in, s, 0, s.bytes.size());
  if (missing > static_cast<std::int64_t>(kMaxTextBytes)) return in.fail_limits();
  std::int64_t left = text_at == Side::left ? 0 : missing;
  if (text_at == Side::both) left = missing / 2 + (missing & left_of_odd & 1);
  Builder out;
  for (std::int64_t i = 0; i < left; ++i) out.append(fill);
  out.append(s);
  for (std::int64_t i = left; i < missing; ++i) out.append(fill);
  return in.finish(out);
}

}  // namespace kvasir::text::tmpl
