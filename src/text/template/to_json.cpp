#include "text/template/to_json.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/utf8.h"
#include "text/template/operators.h"
#include "text/template/print.h"

namespace kvasir::text::tmpl {

namespace {

std::string json_number(double d) {
  if (std::isnan(d)) return "NaN";
  if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
  return float_repr(d);
}

void append_unit(std::string& out, unsigned unit) {
  char text[8];
  std::snprintf(text, sizeof text, "\\u%04x", unit);
  out += text;
}

// The escape of c, empty when it is written as it is.
std::string json_escape(char32_t c, bool ensure_ascii) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\f':
      return "\\f";
    case '\b':
      return "\\b";
    default:
      break;
  }
  std::string out;
  if (c < 0x20 || (ensure_ascii && c > 0x7e && c < 0x10000)) {
    if (c != 0x7f) append_unit(out, static_cast<unsigned>(c));
  } else if (ensure_ascii && c >= 0x10000) {
    append_unit(out, static_cast<unsigned>(0xd800 + ((c - 0x10000) >> 10)));
    append_unit(out, static_cast<unsigned>(0xdc00 + ((c - 0x10000) & 0x3ff)));
  }
  return out;
}

class Dumper {
 public:
  Dumper(Interp& in, const JsonFormat& format) : in_(in), format_(format) {}

  bool dump(const Value& v) {
    if (out_.overflowed() || depth_ > kMaxNesting) {
      in_.fail_limits();
      return false;
    }
    switch (v.kind) {
      case Kind::none:
        out_.append("null");
        return true;
      case Kind::boolean:
        out_.append(v.boolean ? "true" : "false");
        return true;
      case Kind::integer:
        out_.append(std::to_string(v.integer));
        return true;
      case Kind::floating:
        out_.append(json_number(v.floating));
        return true;
      case Kind::string:
        return string(*v.string);
      case Kind::list:
      case Kind::tuple:
        return array(*v.list);
      case Kind::dict:
        return object(*v.dict);
      default:
        in_.fail("Object of type " + std::string(type_name(v)) + " is not JSON serializable");
        return false;
    }
  }

  Value finish() { return in_.finish(out_); }

 private:
  bool string(const Str& s) {
    out_.append("\"");
    std::size_t plain = 0;
    for (std::size_t at = 0; at < s.bytes.size();) {
      const auto byte = static_cast<unsigned char>(s.bytes[at]);
      if (byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\') {
        ++at;
        continue;
      }
      const DecodedChar c = decode_utf8(s.bytes.substr(at));
      const std::string escaped = json_escape(c.code_point, format_.ensure_ascii);
      if (!escaped.empty()) {
        out_.append(s, plain, at);
        out_.append(escaped, s.is_content_at(at));
        plain = at + c.n_bytes;
      }
      at += c.n_bytes;
    }
    out_.append(s, plain, s.bytes.size());
    out_.append("\"");
    return in_.work(static_cast<std::int64_t>(s.bytes.size()));
  }

  void new_line() {
    if (!format_.is_indented) return;
    out_.append("\n");
    for (int i = 0; i < depth_; ++i) out_.append(format_.indent);
  }

  bool array(const List& list) {
    if (list.items.empty()) {
      out_.append("[]");
      return true;
    }
    out_.append("[");
    ++depth_;
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_.append(format_.item_separator);
      new_line();
      if (!in_.tick() || !dump(list.items[i])) return false;
    }
    --depth_;
    new_line();
    out_.append("]");
    return true;
  }

  bool object(const Dict& dict) {
    if (dict.entries.empty()) {
      out_.append("{}");
      return true;
    }
    List* order = in_.list();
    for (const auto& [key, value] : dict.entries) {
      List* pair = in_.list();
      pair->items.assign({key, value});
      order->items.push_back(Value::tuple(pair));
    }
    if (format_.sort_keys && !sort_values(in_, order->items, {.by_pair_member = 0})) return false;
    out_.append("{");
    ++depth_;
    bool is_first = true;
    for (const Value& pair : order->items) {
      if (!is_first) out_.append(format_.item_separator);
      is_first = false;
      new_line();
      if (!in_.tick() || !key(pair.list->items[0])) return false;
      out_.append(format_.key_separator);
      if (!dump(pair.list->items[1])) return false;
    }
    --depth_;
    new_line();
    out_.append("}");
    return true;
  }

  bool key(const Value& k) {
    switch (k.kind) {
      case Kind::string:
        return string(*k.string);
      case Kind::boolean:
      case Kind::none:
      case Kind::integer:
      case Kind::floating:
        out_.append("\"");
        if (!dump(k)) return false;
        out_.append("\"");
        return true;
      default:
        in_.fail("keys must be str, int, float, bool or None, not " + std::string(type_name(k)));
        return false;
    }
  }

  Interp& in_;
  const JsonFormat& format_;
  Builder out_;
  int depth_ = 0;
};

Value from_json(Interp& in, const json::Value& v, bool is_content) {
  if (!in.tick()) return Value::error();
  if (const bool* b = v.as_bool()) return Value::of(*b);
  if (const std::int64_t* i = v.as_int()) return Value::of(*i);
  if (v.is_number()) return Value::of(*v.as_number());
  if (const std::string* s = v.as_string()) return in.str(*s, is_content);
  if (const json::Array* array = v.as_array()) {
    List* list = in.list();
    for (const json::Value& item : *array) {
      list->items.push_back(from_json(in, item, is_content));
      if (in.failed()) return Value::error();
    }
    return Value::of(list);
  }
  if (const json::Object* object = v.as_object()) {
    Dict* dict = in.dict();
    for (const auto& [key, value] : *object) {
      const Value name = in.str(key, is_content);
      const Value item = from_json(in, value, is_content);
      if (in.failed()) return Value::error();
      dict->set(name, item);
    }
    return Value::of(dict);
  }
  return Value::none();
}

}  // namespace

Value dump_json(Interp& in, const Value& v, const JsonFormat& format) {
  Dumper dumper(in, format);
  return dumper.dump(v) ? dumper.finish() : Value::error();
}

Value load_json(Interp& in, std::string_view text, bool is_content) {
  if (!in.work(static_cast<std::int64_t>(text.size()) * 4)) return Value::error();
  const auto parsed = json::parse(text, {.max_bytes = kMaxTextBytes, .max_depth = 128});
  if (!parsed) return in.fail("from_json: " + parsed.error().what);
  return from_json(in, *parsed, is_content);
}

}  // namespace kvasir::text::tmpl
