// "%(name)05.2f" % values.
#include <algorithm>
#include <cmath>

#include "text/template/format.h"
#include "text/template/print.h"

namespace kvasir::text::tmpl {

namespace {

class PercentFormatter {
 public:
  PercentFormatter(Interp& in, const Str& format, const Value& values)
      : in_(in), format_(format), s_(format.bytes), values_(values) {}

  Value run() {
    if (!in_.work(static_cast<std::int64_t>(s_.size()))) return Value::error();
    while (at_ < s_.size()) {
      const std::size_t percent = std::min(s_.find('%', at_), s_.size());
      out_.append(format_, at_, percent);
      at_ = percent + 1;
      if (percent < s_.size() && (!in_.tick() || !directive())) return Value::error();
    }
    const bool takes_all =
        values_.is(Kind::tuple) ? next_ >= values_.list->items.size() : used_single_ || has_items();
    if (!takes_all) return in_.fail("not all arguments converted during string formatting");
    return in_.finish(out_);
  }

 private:
  // Values with items of their own may stay unused.
  bool has_items() const {
    return values_.is(Kind::dict) || values_.is(Kind::list) || values_.is(Kind::range) ||
           values_.is(Kind::undefined);
  }

  bool incomplete() {
    in_.fail("incomplete format");
    return false;
  }

  bool next_value(Value& out) {
    if (has_key_) {
      out = keyed_;
      return true;
    }
    if (values_.is(Kind::tuple) ? next_ < values_.list->items.size() : !used_single_) {
      out = values_.is(Kind::tuple) ? values_.list->items[next_++] : values_;
      used_single_ = true;
      return true;
    }
    in_.fail("not enough arguments for format string");
    return false;
  }

  bool key() {
    has_key_ = at_ < s_.size() && s_[at_] == '(';
    if (!has_key_) return true;
    int open = 1;  // parentheses nest
    const std::size_t begin = ++at_;
    for (; at_ < s_.size() && open > 0; ++at_) open += s_[at_] == '(' ? 1 : s_[at_] == ')' ? -1 : 0;
    if (open > 0) {
      in_.fail("incomplete format key");
      return false;
    }
    if (!values_.is(Kind::dict)) {
      in_.fail("format requires a mapping");
      return false;
    }
    const std::string_view name = s_.substr(begin, at_ - 1 - begin);
    const Value* found = values_.dict->find(name);
    if (found == nullptr) {
      in_.fail("'" + std::string(name) + "'");
      return false;
    }
    keyed_ = *found;
    return true;
  }

  // Digits or `*`.
  bool number(std::int64_t& out) {
    if (at_ < s_.size() && s_[at_] == '*') {
      ++at_;
      Value v;
      if (!next_value(v)) return false;
      if (!v.is_int()) {
        in_.fail("* wants int");
        return false;
      }
      out = v.as_int();
    } else {
      for (; at_ < s_.size() && s_[at_] >= '0' && s_[at_] <= '9'; ++at_) {
        out = std::min<std::int64_t>(out * 10 + (s_[at_] - '0'), std::int64_t{1} << 40);
      }
    }
    if (out > static_cast<std::int64_t>(kMaxTextBytes)) in_.fail_limits();
    return !in_.failed();
  }

  bool directive() {
    Layout layout;
    bool left = false, zero = false;
    if (!key()) return false;
    for (; at_ < s_.size(); ++at_) {
      const char c = s_[at_];
      if (c == '-')
        left = true;
      else if (c == '0')
        zero = true;
      else if (c == '+')
        layout.sign = '+';
      else if (c == ' ')
        layout.sign = layout.sign == '+' ? '+' : ' ';
      else if (c == '#')
        layout.alternate = true;
      else
        break;
    }
    if (!number(layout.width)) return false;
    if (layout.width < 0) {
      left = true;
      layout.width = -layout.width;
    }
    if (at_ < s_.size() && s_[at_] == '.') {
      ++at_;
      layout.precision = 0;
      if (!number(layout.precision)) return false;
      layout.precision = std::max<std::int64_t>(layout.precision, 0);
    }
    while (at_ < s_.size() && (s_[at_] == 'h' || s_[at_] == 'l' || s_[at_] == 'L')) ++at_;
    if (at_ >= s_.size()) return incomplete();
    layout.type = s_[at_++];
    if (layout.type == '%') {
      out_.append("%");
      return true;
    }
    layout.align = left ? '<' : '\0';
    Value v;
    return next_value(v) && convert(v, layout, zero && !left);
  }

  bool convert(const Value& v, Layout layout, bool zero) {
    switch (layout.type) {
      case 's':
        return text(to_str(in_, v), layout);
      case 'r':
      case 'a':
        return text(to_repr(in_, v), layout);
      case 'c':
        if (v.is_string() && char_count(*v.string) == 1) return text(v, layout);
        break;
      case 'd':
      case 'i':
      case 'u':
        layout.type = 'd';
        break;
      case 'o':
      case 'x':
      case 'X':
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        break;
      default:
        in_.fail(std::string("unsupported format character '") + layout.type + "'");
        return false;
    }
    const bool needs_int =
        layout.type == 'o' || layout.type == 'x' || layout.type == 'X' || layout.type == 'c';
    if (!v.is_number() || (needs_int && v.is(Kind::floating))) {
      if (v.is(Kind::undefined)) in_.fail_undefined(v);
      in_.fail(std::string("%") + layout.type + " format: a real number is required, not " +
               std::string(type_name(v)));
      return false;
    }
    return number_value(v, layout, zero);
  }

  bool number_value(Value v, Layout layout, bool zero) {
    if (layout.type == 'd' && v.is(Kind::floating)) {
      if (!(std::fabs(v.floating) < 9.2e18)) {
        in_.fail("cannot convert float to integer");
        return false;
      }
      v = Value::of(static_cast<std::int64_t>(v.floating));
    }
    if (zero) {
      layout.fill = '0';
      layout.align = '=';
    }
    const bool is_integer =
        layout.type == 'd' || layout.type == 'o' || layout.type == 'x' || layout.type == 'X';
    if (!is_integer || layout.precision < 0) {
      if (layout.align == '\0') layout.align = '>';
      return append_formatted(in_, out_, v.is(Kind::boolean) ? Value::of(v.as_int()) : v, layout);
    }
    // An integer's precision is its least number of digits.
    std::string digits = number_text(v, layout);
    const auto least = static_cast<std::size_t>(std::min<std::int64_t>(layout.precision, 100'000));
    if (digits.size() < least) digits.insert(0, least - digits.size(), '0');
    std::string sign = v.as_int() < 0 ? "-" : layout.sign == '-' ? "" : std::string(1, layout.sign);
    if (layout.alternate && layout.type != 'd') sign += std::string("0") + layout.type;
    const std::string text_of = sign + digits;
    Str s;
    s.bytes = text_of;
    return append_padded(in_, out_, s, layout, '>', sign.size());
  }

  bool text(const Value& v, const Layout& layout) {
    if (v.is_error()) return false;
    const std::size_t end =
        layout.precision < 0 ? v.text().size() : char_to_byte(v.text(), layout.precision);
    return append_padded(in_, out_, *sub_str(in_.arena(), *v.string, 0, end), layout, '>', 0);
  }

  Interp& in_;
  const Str& format_;
  std::string_view s_;
  const Value& values_;
  Builder out_;
  std::size_t at_ = 0;
  std::size_t next_ = 0;
  bool used_single_ = false;
  bool has_key_ = false;
  Value keyed_;
};

}  // namespace

Value percent_format(Interp& in, const Str& format, const Value& values) {
  return PercentFormatter(in, format, values).run();
}

}  // namespace kvasir::text::tmpl
