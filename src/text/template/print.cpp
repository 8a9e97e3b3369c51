#include "text/template/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/utf8.h"
#include "text/template/iterators.h"
#include "text/template/loop.h"
#include "text/template/unicode.h"

namespace kvasir::text::tmpl {

namespace {

void append_escape(std::string& out, char32_t c) {
  char text[16];
  const char* format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
  std::snprintf(text, sizeof text, format, static_cast<unsigned>(c));
  out += text;
}

// The characters of s inside quotes; each keeps its origin, the quotes are the template's.
void append_quoted(Builder& out, const Str& s) {
  const bool has_single = s.bytes.find('\'') != s.bytes.npos;
  const char quote = has_single && s.bytes.find('"') == s.bytes.npos ? '"' : '\'';
  out.append(std::string_view(&quote, 1));
  std::size_t plain = 0;  // what precedes `at` and needs no escape
  for (std::size_t at = 0; at < s.bytes.size();) {
    const DecodedChar c = decode_utf8(s.bytes.substr(at));
    std::string escaped;
    if (c.code_point == static_cast<char32_t>(quote) || c.code_point == '\\') {
      escaped = {'\\', static_cast<char>(c.code_point)};
    } else if (c.code_point == '\n') {
      escaped = "\\n";
    } else if (c.code_point == '\r') {
      escaped = "\\r";
    } else if (c.code_point == '\t') {
      escaped = "\\t";
    } else if (!is_printable(c.code_point)) {
      append_escape(escaped, c.code_point);
    }
    if (!escaped.empty()) {
      out.append(s, plain, at);
      out.append(escaped, s.is_content_at(at));
      plain = at + c.n_bytes;
    }
    at += c.n_bytes;
  }
  out.append(s, plain, s.bytes.size());
  out.append(std::string_view(&quote, 1));
}

class Printer {
 public:
  Printer(Interp& in, Builder& out) : in_(in), out_(out) {}

  bool repr(const Value& v) {
    if (out_.overflowed() || depth_ > kMaxNesting) {
      in_.fail_limits();
      return false;
    }
    switch (v.kind) {
      case Kind::string:
        if (v.string->markup) out_.append("Markup(");
        append_quoted(out_, *v.string);
        if (v.string->markup) out_.append(")");
        return in_.work(static_cast<std::int64_t>(v.text().size()) * 4);
      case Kind::list:
        return sequence(v.list->items, "[", "]");
      case Kind::tuple:
        return sequence(v.list->items, "(", v.list->items.size() == 1 ? ",)" : ")");
      case Kind::dict:
        return dict(*v.dict);
      case Kind::dict_view:
        return view(*v.view);
      case Kind::name_space:
        out_.append("<Namespace ");
        if (!dict(*v.dict)) return false;
        out_.append(">");
        return true;
      case Kind::range:
        return range(*v.range);
      case Kind::loop:
        return loop(v);
      default:
        out_.append(simple(v));
        return true;
    }
  }

 private:
  static std::string simple(const Value& v) {
    switch (v.kind) {
      case Kind::none:
        return "None";
      case Kind::boolean:
        return v.boolean ? "True" : "False";
      case Kind::integer:
        return std::to_string(v.integer);
      case Kind::floating:
        return float_repr(v.floating);
      case Kind::error:
      case Kind::missing:
      case Kind::undefined:
        return "Undefined";
      case Kind::macro:
        return "<Macro '" + v.macro->def->name + "'>";
      case Kind::function:
        return "<built-in method " + std::string(v.function->name) + ">";
      default:
        return "<" + std::string(type_name(v)) + " object>";
    }
  }

  bool sequence(const std::pmr::vector<Value>& items,
                std::string_view open,
                std::string_view close) {
    ++depth_;
    out_.append(open);
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.append(", ");
      if (!in_.tick() || !repr(items[i])) return false;
    }
    out_.append(close);
    --depth_;
    return true;
  }

  bool dict(const Dict& d) {
    ++depth_;
    out_.append("{");
    for (std::size_t i = 0; i < d.entries.size(); ++i) {
      if (i > 0) out_.append(", ");
      if (!in_.tick() || !repr(d.entries[i].first)) return false;
      out_.append(": ");
      if (!repr(d.entries[i].second)) return false;
    }
    out_.append("}");
    --depth_;
    return true;
  }

  bool view(const DictView& v) {
    Value whole;
    whole.kind = Kind::dict_view;
    DictView copy = v;
    whole.view = &copy;
    out_.append(type_name(whole));
    out_.append("(");
    List* items = in_.list();
    Iter* entries = in_.iterate(whole);
    for (Value item; entries != nullptr && entries->next(in_, item);) items->items.push_back(item);
    if (in_.failed() || !sequence(items->items, "[", "]")) return false;
    out_.append(")");
    return true;
  }

  bool range(const Range& r) {
    std::string text = "range(" + std::to_string(r.start) + ", " + std::to_string(r.stop);
    if (r.step != 1) text += ", " + std::to_string(r.step);
    out_.append(text + ")");
    return true;
  }

  bool loop(const Value& v) {
    const std::int64_t length = length_of(&in_, v);
    const std::int64_t index = v.loop->index0 + 1;
    out_.append("<LoopContext " + std::to_string(index) + "/" + std::to_string(length) + ">");
    return !in_.failed();
  }

  Interp& in_;
  Builder& out_;
  int depth_ = 0;
};

}  // namespace

std::string float_repr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific).ptr;
  const std::string_view scientific(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t e = scientific.find('e');
  const int exponent = std::atoi(std::string(scientific.substr(e + 1)).c_str());
  if (exponent < -4 || exponent >= 16) {  // at least two exponent digits, as to_chars writes them
    return std::string(scientific);
  }
  const auto fixed_end =
      std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::fixed).ptr;
  std::string fixed(buffer, fixed_end);
  if (fixed.find('.') == fixed.npos) fixed += ".0";
  return fixed;
}

bool append_str(Interp& in, Builder& out, const Value& v) {
  if (v.is_error() || v.is(Kind::undefined)) return !v.is_error();
  if (v.is_string()) {
    out.append(*v.string);
  } else if (!Printer(in, out).repr(v)) {
    return false;
  }
  if (out.overflowed()) in.fail_limits();
  return !in.failed();
}

bool append_repr(Interp& in, Builder& out, const Value& v) {
  if (!Printer(in, out).repr(v)) return false;
  if (out.overflowed()) in.fail_limits();
  return !in.failed();
}

Value to_str(Interp& in, const Value& v) {
  if (v.is_string() || v.is_error()) return v;
  Builder out;
  return append_str(in, out, v) ? in.finish(out) : Value::error();
}

Value to_repr(Interp& in, const Value& v) {
  Builder out;
  return append_repr(in, out, v) ? in.finish(out) : Value::error();
}

std::string short_repr(const Value& v) {
  if (v.is_string()) return "'" + std::string(v.text().substr(0, 200)) + "'";
  if (v.is(Kind::integer)) return std::to_string(v.integer);
  if (v.is(Kind::floating)) return float_repr(v.floating);
  return std::string(type_name(v)) + " object";
}

}  // namespace kvasir::text::tmpl
