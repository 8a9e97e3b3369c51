// Filters that make numbers (TXT-23).
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "text/template/operators.h"
#include "text/template/registry.h"
#include "text/template/text_ops.h"

namespace kvasir::text::tmpl {

namespace {

std::string lower_ascii(std::string_view s) {
  std::string out(s);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

// The digits of a Python number literal without its underscores; nullopt when one is misplaced.
std::optional<std::string> without_underscores(std::string_view s) {
  std::string out;
  for (std::size_t i = 0; i < s.size(); ++i) {
    if (s[i] != '_') {
      out += s[i];
      continue;
    }
    const bool between = i > 0 && i + 1 < s.size() && s[i - 1] != '_' && s[i + 1] != '_';
    if (!between) return std::nullopt;
  }
  return out;
}

// int(text, base); nullopt: not such a number.
std::optional<std::int64_t> parse_int(std::string_view s, std::int64_t base) {
  bool negative = false;
  if (s.starts_with('-') || s.starts_with('+')) {
    negative = s[0] == '-';
    s.remove_prefix(1);
  }
  std::string prefix = lower_ascii(s.substr(0, 2));
  const std::int64_t named = prefix == "0x" ? 16 : prefix == "0o" ? 8 : prefix == "0b" ? 2 : 0;
  if (named != 0 && (base == 0 || base == named)) {
    s.remove_prefix(2);
    base = named;
  }
  if (base == 0) base = 10;
  const auto digits = without_underscores(s);
  if (base < 2 || base > 36 || !digits || digits->empty()) return std::nullopt;
  std::int64_t value = 0;
  const std::string text = (negative ? "-" : "") + *digits;
  const auto parsed =
      std::from_chars(text.data(), text.data() + text.size(), value, static_cast<int>(base));
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

// float(text); nullopt: not a number.
std::optional<double> parse_float(std::string_view s) {
  bool negative = false;
  if (s.starts_with('-') || s.starts_with('+')) {
    negative = s[0] == '-';
    s.remove_prefix(1);
  }
  const auto digits = without_underscores(s);
  if (!digits || digits->empty() || (*digits)[0] == '-' || (*digits)[0] == '+') return std::nullopt;
  const std::string word = lower_ascii(*digits);
  double value = 0;
  if (word == "inf" || word == "infinity") {
    value = std::numeric_limits<double>::infinity();
  } else if (word == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    const auto parsed = std::from_chars(word.data(), word.data() + word.size(), value);
    if (parsed.ptr != word.data() + word.size() || parsed.ec == std::errc::invalid_argument) {
      return std::nullopt;
    }
    if (parsed.ec == std::errc::result_out_of_range) {
      value = word.find("e-") != word.npos ? 0.0 : std::numeric_limits<double>::infinity();
    }
  }
  return negative ? -value : value;
}

std::optional<std::int64_t> truncated(double d) {
  if (!(std::fabs(d) < 9.2e18)) return std::nullopt;
  return static_cast<std::int64_t>(d);
}

Value int_filter(Interp& in, const Value& self, const Args& args) {
  Value bound[2] = {Value::of(std::int64_t{0}), Value::of(std::int64_t{10})};
  if (!bind_args(in, "int", args, {"default", "base"}, 0, bound)) return Value::error();
  if (self.is(Kind::undefined)) return in.fail_undefined(self);
  if (self.is_int()) return Value::of(self.as_int());
  std::optional<std::int64_t> result;
  if (self.is(Kind::floating)) {
    if (std::isinf(self.floating)) return bound[0];
    result = truncated(self.floating);
  } else if (self.is_string()) {
    const Value text = strip(in, *self.string, nullptr, Side::both);
    if (text.is_error()) return text;
    result = parse_int(text.text(), bound[1].is_int() ? bound[1].as_int() : 10);
    if (!result) {
      const auto number = parse_float(text.text());  // "42.9"|int is 42
      if (number) result = truncated(*number);
    }
  }
  return result ? Value::of(*result) : bound[0];
}

Value float_filter(Interp& in, const Value& self, const Args& args) {
  Value other = Value::of(0.0);
  if (!bind_args(in, "float", args, {"default"}, 0, &other)) return Value::error();
  if (self.is(Kind::undefined)) return in.fail_undefined(self);
  if (self.is_number()) return Value::of(self.as_double());
  if (!self.is_string()) return other;
  const Value text = strip(in, *self.string, nullptr, Side::both);
  if (text.is_error()) return text;
  const auto number = parse_float(text.text());
  return number ? Value::of(*number) : other;
}

Value abs_filter(Interp& in, const Value& self, const Args& args) {
  if (!bind_args(in, "abs", args, {}, 0, nullptr)) return Value::error();
  if (self.is(Kind::undefined)) return in.fail_undefined(self);
  if (self.is(Kind::floating)) return Value::of(std::fabs(self.floating));
  if (!self.is_int())
    return in.fail("bad operand type for abs(): '" + std::string(type_name(self)) + "'");
  return self.as_int() < 0 ? negate(in, self, false) : Value::of(self.as_int());
}

// Python's round(x, n): the decimal nearest to the exact binary value, ties to even.
double round_decimal(double x, std::int64_t digits) {
  if (!std::isfinite(x) || digits > 323) return x;
  if (digits < -308) return std::copysign(0.0, x);
  char text[1100];
  if (digits >= 0) {
    const auto end = std::to_chars(text, text + sizeof text, x, std::chars_format::fixed,
                                   static_cast<int>(digits))
                         .ptr;
    double result = x;
    std::from_chars(text, end, result);
    return result;
  }
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(x / scale) * scale;
}

Value round_int(Interp& in, std::int64_t value, std::int64_t digits) {
  if (digits >= 0) return Value::of(value);
  if (digits < -18) return Value::of(std::int64_t{0});
  std::int64_t scale = 1;
  for (std::int64_t i = digits; i < 0; ++i) scale *= 10;
  const std::int64_t rest = ((value % scale) + scale) % scale;
  const std::int64_t floor = value - rest;
  const bool up = rest * 2 > scale || (rest * 2 == scale && (floor / scale) % 2 != 0);
  std::int64_t result = floor;
  if (up && __builtin_add_overflow(floor, scale, &result))
    return in.fail("integer result too large");
  return Value::of(result);
}

Value round_filter(Interp& in, const Value& self, const Args& args) {
  Value bound[2] = {Value::of(std::int64_t{0}), in.str("common")};
  if (!bind_args(in, "round", args, {"precision", "method"}, 0, bound)) return Value::error();
  if (self.is(Kind::undefined)) return in.fail_undefined(self);
  const std::string_view method = bound[1].is_string() ? bound[1].text() : "";
  if (method != "common" && method != "ceil" && method != "floor") {
    return in.fail("method must be common, ceil or floor");
  }
  if (!self.is_number() || !bound[0].is_int()) {
    return in.fail("type " + std::string(type_name(self)) + " doesn't define __round__ method");
  }
  const std::int64_t digits = bound[0].as_int();
  if (method == "common") {
    if (self.is_int()) return round_int(in, self.as_int(), digits);
    return Value::of(round_decimal(self.floating, digits));
  }
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = self.as_double() * scale;
  return Value::of((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

constexpr std::array kFilters = {FilterDef{"abs", abs_filter}, FilterDef{"float", float_filter},
                                 FilterDef{"int", int_filter}, FilterDef{"round", round_filter}};

}  // namespace

std::span<const FilterDef> number_filters() { return kFilters; }

}  // namespace kvasir::text::tmpl
