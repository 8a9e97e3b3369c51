#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/utf8.h"
#include "text/template/format.h"
#include "text/template/print.h"

namespace kvasir::text::tmpl {

namespace {

constexpr std::int64_t kMaxPrecision = 1000;

bool is_align(char32_t c) { return c == '<' || c == '>' || c == '^' || c == '='; }

std::string to_base(std::uint64_t value, int base, bool upper) {
  char digits[72];
  const auto end = std::to_chars(digits, digits + sizeof digits, value, base).ptr;
  std::string text(digits, end);
  if (upper) {
    for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  }
  return text;
}

std::string fixed_or_scientific(double d, std::chars_format format, std::int64_t precision) {
  char text[1500];
  const auto end =
      std::to_chars(text, text + sizeof text, d, format, static_cast<int>(precision)).ptr;
  return {text, end};
}

// %g: precision significant digits, trailing zeros dropped unless `alternate`.
std::string general(double d, std::int64_t precision, bool alternate) {
  if (precision == 0) precision = 1;
  std::string scientific = fixed_or_scientific(d, std::chars_format::scientific, precision - 1);
  const std::size_t e = scientific.find('e');
  const int exponent = std::atoi(scientific.c_str() + e + 1);
  std::string text = scientific;
  std::string tail;
  if (exponent >= -4 && exponent < precision) {
    text = fixed_or_scientific(d, std::chars_format::fixed, precision - 1 - exponent);
  } else {
    tail = text.substr(e);
    text.resize(e);
  }
  if (!alternate && text.find('.') != text.npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.ends_with('.')) text.pop_back();
  }
  return text + tail;
}

std::string float_text(double d, const Layout& layout) {
  d = std::fabs(d);
  const char type = layout.type;
  const bool upper = type == 'E' || type == 'F' || type == 'G';
  std::string text;
  if (std::isnan(d) || std::isinf(d)) {
    text = std::isnan(d) ? "nan" : "inf";
    if (type == '%') text += '%';
  } else {
    const std::int64_t precision = layout.precision < 0 ? 6 : layout.precision;
    switch (type) {
      case 'e':
      case 'E':
        text = fixed_or_scientific(d, std::chars_format::scientific, precision);
        break;
      case 'f':
      case 'F':
        text = fixed_or_scientific(d, std::chars_format::fixed, precision);
        break;
      case '%':
        text = fixed_or_scientific(d * 100, std::chars_format::fixed, precision) + "%";
        break;
      case 'g':
      case 'G':
      case 'n':
        text = general(d, precision, layout.alternate);
        break;
      default:  // as repr, or as g with one decimal at least
        text = layout.precision < 0 ? float_repr(d) : general(d, precision, layout.alternate);
        if (layout.precision >= 0 && text.find_first_of(".e") == text.npos) text += ".0";
        break;
    }
  }
  if (upper) {
    for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  }
  return text;
}

// Separators every three digits of the integer part (four for other bases).
std::string grouped(const std::string& text, const Layout& layout) {
  if (layout.grouping == '\0') return text;
  const std::size_t every =
      layout.type == 'x' || layout.type == 'X' || layout.type == 'b' || layout.type == 'o' ? 4 : 3;
  const std::size_t end = std::min(text.find_first_of(".e%"), text.size());
  std::string out;
  for (std::size_t i = 0; i < end; ++i) {
    if (i > 0 && (end - i) % every == 0) out += layout.grouping;
    out += text[i];
  }
  return out + text.substr(end);
}

bool is_float_type(char type) {
  return type == 'e' || type == 'E' || type == 'f' || type == 'F' || type == 'g' || type == 'G' ||
         type == '%';
}

bool unknown_code(Interp& in, char type, const Value& v) {
  in.fail(std::string("Unknown format code '") + type + "' for object of type '" +
          std::string(type_name(v)) + "'");
  return false;
}

bool append_number(Interp& in, Builder& out, const Value& v, const Layout& layout) {
  constexpr std::string_view kIntTypes = "bcdoxXn";
  const bool as_float = v.is(Kind::floating) || is_float_type(layout.type);
  if (!as_float && layout.type != '\0' && kIntTypes.find(layout.type) == kIntTypes.npos) {
    return unknown_code(in, layout.type, v);
  }
  if (v.is(Kind::floating) && layout.type != '\0' && layout.type != 'n' &&
      !is_float_type(layout.type)) {
    return unknown_code(in, layout.type, v);
  }
  if (!as_float && layout.no_negative_zero) {
    in.fail("Negative zero coercion (z) not allowed in integer format specifier");
    return false;
  }
  if (!as_float && layout.precision >= 0) {
    in.fail("Precision not allowed in integer format specifier");
    return false;
  }
  if (layout.type == 'c') {
    std::string c;
    if (v.as_int() < 0 || v.as_int() > 0x10ffff) {
      in.fail("%c arg not in range(0x110000)");
      return false;
    }
    append_utf8(c, static_cast<char32_t>(v.as_int()));
    Str text;
    text.bytes = c;
    return append_padded(in, out, text, layout, '<', 0);
  }
  Value number = v;
  if (as_float) number = Value::of(v.as_double());
  std::string digits = number_text(number, layout);
  const bool is_zero = digits.find_first_of("123456789") == digits.npos;
  const bool negative = v.is(Kind::floating)
                            ? std::signbit(v.floating) && !std::isnan(v.floating) &&
                                  !(layout.no_negative_zero && is_zero)
                            : v.as_int() < 0;
  std::string text = negative ? "-" : layout.sign == '-' ? "" : std::string(1, layout.sign);
  if (layout.alternate && !as_float && layout.type != '\0' && layout.type != 'd' &&
      layout.type != 'n') {
    text += std::string("0") + layout.type;
  }
  const std::size_t n_sign = text.size();
  if (layout.grouping != '\0' && layout.align == '=' && layout.fill == '0') {
    // Padding zeros are grouped too.
    while (static_cast<std::int64_t>(n_sign + grouped(digits, layout).size()) < layout.width) {
      if (!in.work(static_cast<std::int64_t>(digits.size()) + 64)) return false;
      digits.insert(0, 1, '0');
    }
  }
  text += grouped(digits, layout);
  Str s;
  s.bytes = text;
  return append_padded(in, out, s, layout, '>', n_sign);
}

}  // namespace

std::string number_text(const Value& v, const Layout& layout) {
  if (v.is(Kind::floating)) return float_text(v.floating, layout);
  const std::int64_t i = v.as_int();
  const std::uint64_t magnitude =
      i < 0 ? 0 - static_cast<std::uint64_t>(i) : static_cast<std::uint64_t>(i);
  switch (layout.type) {
    case 'b':
      return to_base(magnitude, 2, false);
    case 'o':
      return to_base(magnitude, 8, false);
    case 'x':
      return to_base(magnitude, 16, false);
    case 'X':
      return to_base(magnitude, 16, true);
    default:
      return std::to_string(magnitude);
  }
}

bool parse_layout(Interp& in, std::string_view spec, Layout& out) {
  const std::string whole(spec);
  const DecodedChar first = decode_utf8(spec);
  if (first.n_bytes > 0 && first.n_bytes < spec.size() &&
      is_align(static_cast<unsigned char>(spec[first.n_bytes]))) {
    out.fill = first.code_point;
    out.align = spec[first.n_bytes];
    spec.remove_prefix(first.n_bytes + 1);
  } else if (!spec.empty() && is_align(static_cast<unsigned char>(spec[0]))) {
    out.align = spec[0];
    spec.remove_prefix(1);
  }
  const auto take = [&spec](std::string_view any) {
    if (spec.empty() || any.find(spec[0]) == any.npos) return '\0';
    const char c = spec[0];
    spec.remove_prefix(1);
    return c;
  };
  const auto take_number = [&spec](std::int64_t& value) {
    const auto parsed = std::from_chars(spec.data(), spec.data() + spec.size(), value);
    const auto n = static_cast<std::size_t>(parsed.ptr - spec.data());
    spec.remove_prefix(n);
    return n > 0 && parsed.ec == std::errc();
  };
  if (const char sign = take("+- ")) out.sign = sign;
  out.no_negative_zero = take("z") != '\0';
  out.alternate = take("#") != '\0';
  if (take("0") != '\0') {
    if (out.align == '\0') {
      out.fill = '0';
      out.align = '=';
    }
  }
  bool ok = true;
  if (!spec.empty() && spec[0] >= '0' && spec[0] <= '9') ok = take_number(out.width);
  if (const char grouping = take(",_")) out.grouping = grouping;
  if (take(".") != '\0') ok = ok && !spec.empty() && spec[0] != '-' && take_number(out.precision);
  if (!spec.empty()) {
    out.type = spec[0];
    spec.remove_prefix(1);
  }
  if (out.width > static_cast<std::int64_t>(kMaxTextBytes)) in.fail_limits();
  if (!ok || !spec.empty() || in.failed()) {
    in.fail("Invalid format specifier '" + whole + "'");
    return false;
  }
  return true;
}

// n_sign: leading bytes that '=' alignment keeps before the padding.
bool append_padded(Interp& in,
                   Builder& out,
                   const Str& text,
                   const Layout& layout,
                   char default_align,
                   std::size_t n_sign) {
  const std::int64_t missing = std::max<std::int64_t>(layout.width - count_chars(text.bytes), 0);
  if (!in.work(missing)) return false;
  std::string fill;
  append_utf8(fill, layout.fill);
  const auto pad = [&](std::int64_t n) {
    for (; n > 0 && !out.overflowed(); --n) out.append(fill);
  };
  const char align = layout.align == '\0' ? default_align : layout.align;
  if (align == '=') out.append(text, 0, n_sign);
  const std::int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  pad(left);
  out.append(text, align == '=' ? n_sign : 0, text.bytes.size());
  pad(missing - left);
  if (out.overflowed()) in.fail_limits();
  return !in.failed();
}

bool append_formatted(Interp& in, Builder& out, const Value& v, const Layout& layout) {
  if (layout.precision > kMaxPrecision && v.is_number()) {
    in.fail("precision too big");
    return false;
  }
  if (v.is_number() && !(v.is(Kind::boolean) && layout.type == '\0' && layout.width == 0)) {
    return append_number(in, out, v, layout);
  }
  const bool is_default =
      layout.type == '\0' && layout.width == 0 && layout.precision < 0 && layout.align == '\0';
  if (!v.is_string() && !is_default) {
    in.fail("unsupported format string passed to " + std::string(type_name(v)) + ".__format__");
    return false;
  }
  const Value text = to_str(in, v);
  if (text.is_error()) return false;
  if (layout.type != '\0' && layout.type != 's') return unknown_code(in, layout.type, v);
  if (layout.align == '=' && layout.fill != '0') {
    in.fail("'=' alignment not allowed in string format specifier");
    return false;
  }
  const std::size_t end =
      layout.precision < 0 ? text.text().size() : char_to_byte(text.text(), layout.precision);
  Layout padding = layout;
  if (padding.align == '=') padding.align = '<';  // a leading 0 of a text's width
  return append_padded(in, out, *sub_str(in.arena(), *text.string, 0, end), padding, '<', 0);
}

}  // namespace kvasir::text::tmpl
