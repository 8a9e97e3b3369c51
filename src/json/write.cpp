#include <charconv>
#include <cmath>

#include "json/json.h"

namespace kvasir::json {
namespace {

void append_double(std::string& out, double d) {
  if (!std::isfinite(d)) {
    out += "null";
    return;
  }
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), d).ptr;
  const std::string_view digits(buffer, static_cast<std::size_t>(end - buffer));
  out += digits;
  if (digits.find_first_of(".e") == std::string_view::npos) out += ".0";
}

struct Writer {
  std::string& out;
  bool pretty;
  int depth = 0;

  void new_line() {
    if (!pretty) return;
    out += '\n';
    out.append(static_cast<std::size_t>(2 * depth), ' ');
  }

  template <class Range, class F>
  void list(char open, char close, const Range& range, F&& item) {
    out += open;
    ++depth;
    bool first = true;
    for (const auto& element : range) {
      if (!first) out += ',';
      first = false;
      new_line();
      item(element);
    }
    --depth;
    if (!first) new_line();
    out += close;
  }

  void write(const Value& v) {
    if (const bool* b = v.as_bool()) {
      out += *b ? "true" : "false";
    } else if (const auto* i = v.as_int()) {
      out += std::to_string(*i);
    } else if (const auto* u = v.as_uint()) {
      out += std::to_string(*u);
    } else if (v.is_double()) {
      append_double(out, *v.as_number());
    } else if (const auto* s = v.as_string()) {
      append_quoted(out, *s);
    } else if (const auto* a = v.as_array()) {
      list('[', ']', *a, [&](const Value& child) { write(child); });
    } else if (const auto* o = v.as_object()) {
      list('{', '}', *o, [&](const Member& m) {
        append_quoted(out, m.first);
        out += pretty ? ": " : ":";
        write(m.second);
      });
    } else {
      out += "null";
    }
  }
};

}  // namespace

void append_quoted(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += "\\u00";
          out += kHex[c >> 4];
          out += kHex[c & 15];
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

std::string write(const Value& value, Style style) {
  std::string out;
  Writer{out, style == Style::pretty}.write(value);
  return out;
}

}  // namespace kvasir::json
