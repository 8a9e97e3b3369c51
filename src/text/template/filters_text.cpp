// Filters that make text (TXT-23).
#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "text/template/attribute_path.h"
#include "text/template/escape.h"
#include "text/template/format.h"
#include "text/template/iterators.h"
#include "text/template/operators.h"
#include "text/template/print.h"
#include "text/template/registry.h"
#include "text/template/text_ops.h"
#include "text/template/to_json.h"
#include "text/template/unicode.h"

namespace kvasir::text::tmpl {

namespace {

template <Casing kCasing>
Value case_filter(Interp& in, const Value& self, const Args& args) {
  if (!bind_args(in, "case filter", args, {}, 0, nullptr)) return Value::error();
  const Value text = to_str(in, self);
  return text.is_error() ? text : change_case(in, *text.string, kCasing);
}

Value trim(Interp& in, const Value& self, const Args& args) {
  Value chars = Value::none();
  if (!bind_args(in, "trim", args, {"chars"}, 0, &chars)) return Value::error();
  const Value text = to_str(in, self);
  if (text.is_error()) return text;
  if (!chars.is(Kind::none) && !chars.is_string()) {
    return in.fail("strip arg must be None or str");
  }
  return strip(in, *text.string, chars.is_string() ? chars.string : nullptr, Side::both);
}

Value string_filter(Interp& in, const Value& self, const Args& args) {
  if (!bind_args(in, "string", args, {}, 0, nullptr)) return Value::error();
  return to_str(in, self);
}

Value plain(Interp& in, const Value& v) {  // str(v), of a Markup too
  const Value text = to_str(in, v);
  if (text.is_error() || !text.string->markup) return text;
  Str* copy = in.arena().make<Str>(*text.string);
  copy->markup = false;
  return Value::of(copy);
}

Value replace_filter(Interp& in, const Value& self, const Args& args) {
  Value bound[3] = {Value{}, Value{}, Value::none()};
  if (!bind_args(in, "replace", args, {"old", "new", "count"}, 2, bound)) return Value::error();
  if (!bound[2].is(Kind::none) && !bound[2].is_int())
    return in.fail("replace count must be an integer");
  const Value text = plain(in, self);
  const Value from = to_str(in, bound[0]);
  const Value to = to_str(in, bound[1]);
  if (in.failed()) return Value::error();
  return replace(in, *text.string, *from.string, *to.string,
                 bound[2].is_int() ? bound[2].as_int() : -1);
}

Value safe(Interp& in, const Value& self, const Args& args) {
  if (!bind_args(in, "safe", args, {}, 0, nullptr)) return Value::error();
  const Value text = to_str(in, self);
  if (text.is_error()) return text;
  Str* marked = in.arena().make<Str>(*text.string);
  marked->markup = true;
  return Value::of(marked);
}

template <bool kForced>
Value escape_filter(Interp& in, const Value& self, const Args& args) {
  if (!bind_args(in, "escape", args, {}, 0, nullptr)) return Value::error();
  const Value text = to_str(in, self);
  if (text.is_error() || (!kForced && text.string->markup)) return text;
  return Value::of(escape_html(in, *text.string));
}

Value join_filter(Interp& in, const Value& self, const Args& args) {
  Value bound[2] = {in.str(""), Value::none()};
  if (!bind_args(in, "join", args, {"d", "attribute"}, 0, bound)) return Value::error();
  const Value separator = to_str(in, bound[0]);
  Iter* items = in.iterate(self);
  if (items == nullptr || separator.is_error()) return Value::error();
  if (!bound[1].is(Kind::none)) items = map_attribute(in, items, bound[1]);
  return items == nullptr ? Value::error() : join(in, *separator.string, *items, false);
}

Value indent(Interp& in, const Value& self, const Args& args) {
  Value bound[3] = {Value::of(std::int64_t{4}), Value::of(false), Value::of(false)};
  if (!bind_args(in, "indent", args, {"width", "first", "blank"}, 0, bound)) return Value::error();
  if (self.is(Kind::undefined)) return in.fail_undefined(self);
  if (!self.is_string()) {
    return in.fail("can only indent str, not " + std::string(type_name(self)));
  }
  if (!bound[0].is_string() && !bound[0].is_int())
    return in.fail("indent width must be an integer or str");
  const Value lead =
      bound[0].is_string() ? bound[0] : pad(in, Str{}, bound[0].as_int(), " ", 0, Side::left);
  if (lead.is_error()) return lead;
  const bool with_blank = in.truth(bound[2]);
  Builder text;  // a last line end must not vanish with splitlines
  text.append(*self.string);
  text.append("\n");
  const Value closed = in.finish(text);
  if (closed.is_error()) return closed;
  const Value lines = split_lines(in, *closed.string, /*keep_ends=*/false);
  if (lines.is_error()) return lines;
  Builder out;
  if (in.truth(bound[1])) out.append(*lead.string);
  bool is_first = true;
  for (const Value& line : lines.list->items) {
    if (!is_first) {
      out.append("\n");
      if (with_blank || !line.text().empty()) out.append(*lead.string);
    }
    is_first = false;
    out.append(*line.string);
  }
  return in.finish(out);
}

Value wordcount(Interp& in, const Value& self, const Args& args) {
  if (!bind_args(in, "wordcount", args, {}, 0, nullptr)) return Value::error();
  const Value text = to_str(in, self);
  if (text.is_error() || !in.work(static_cast<std::int64_t>(text.text().size()) * 4))
    return Value::error();
  std::int64_t n = 0;
  bool in_word = false;
  for (std::size_t at = 0; at < text.text().size();) {
    const DecodedChar c = decode_utf8(text.text().substr(at));
    const bool is_word = is_alpha(c.code_point) || is_numeric(c.code_point) || c.code_point == '_';
    n += is_word && !in_word ? 1 : 0;
    in_word = is_word;
    at += c.n_bytes;
  }
  return Value::of(n);
}

Value urlencode(Interp& in, const Value& self, const Args& args) {
  if (!bind_args(in, "urlencode", args, {}, 0, nullptr)) return Value::error();
  if (self.is_string() || !is_iterable(self)) {
    const Value text = to_str(in, self);
    return text.is_error() ? text : percent_encode(in, *text.string, /*is_query=*/false);
  }
  Dict* pairs = in.dict();
  const Value source[] = {self};
  if (!fill_dict(in, *pairs, {source, {}})) return Value::error();
  Builder out;
  for (const auto& [key, value] : pairs->entries) {
    if (out.size() > 0) out.append("&");
    const Value name = to_str(in, key);
    const Value text = to_str(in, value);
    if (in.failed()) return Value::error();
    const Value left = percent_encode(in, *name.string, /*is_query=*/true);
    const Value right = percent_encode(in, *text.string, /*is_query=*/true);
    if (in.failed()) return Value::error();
    out.append(*left.string);
    out.append("=");
    out.append(*right.string);
  }
  return in.finish(out);
}

Value center(Interp& in, const Value& self, const Args& args) {
  Value width = Value::of(std::int64_t{80});
  if (!bind_args(in, "center", args, {"width"}, 0, &width)) return Value::error();
  const Value text = to_str(in, self);
  if (text.is_error()) return text;
  if (!width.is_int()) return in.fail("center width must be an integer");
  return pad(in, *text.string, width.as_int(), " ", width.as_int(), Side::both);
}

Value format_filter(Interp& in, const Value& self, const Args& args) {
  const Value text = to_str(in, self);
  if (text.is_error()) return text;
  if (!args.keywords.empty() && !args.positional.empty()) {
    return in.fail("can't handle positional and keyword arguments at the same time");
  }
  if (!args.keywords.empty()) {
    Dict* names = in.dict();
    if (!fill_dict(in, *names, args)) return Value::error();
    return percent_format(in, *text.string, Value::of(names));
  }
  List* values = in.list();
  values->items.assign(args.positional.begin(), args.positional.end());
  return percent_format(in, *text.string, Value::tuple(values));
}

Value truncate(Interp& in, const Value& self, const Args& args) {
  Value bound[4] = {Value::of(std::int64_t{255}), Value::of(false), in.str("..."), Value::none()};
  if (!bind_args(in, "truncate", args, {"length", "killwords", "end", "leeway"}, 0, bound)) {
    return Value::error();
  }
  const std::int64_t leeway = bound[3].is_int() ? bound[3].as_int() : 5;
  if (!self.is_string() || !bound[0].is_int() || !bound[2].is_string()) {
    return in.fail("truncate needs text, an integer length and a text for the end");
  }
  const std::int64_t keep = bound[0].as_int() - char_count(*bound[2].string);
  if (keep < 0) return in.fail("truncate length is shorter than its end");
  if (char_count(*self.string) <= bound[0].as_int() + leeway) return self;
  Str* head = sub_str(in.arena(), *self.string, 0, char_to_byte(self.text(), keep));
  if (!in.truth(bound[1])) {
    const std::size_t space = head->bytes.rfind(' ');
    if (space != head->bytes.npos) head = sub_str(in.arena(), *head, 0, space);
  }
  return Value::of(concat(in.arena(), *head, *bound[2].string));
}

// The reference's signature: tojson(ensure_ascii, indent, separators, sort_keys).
Value tojson(Interp& in, const Value& self, const Args& args) {
  Value bound[4] = {Value::of(false), Value::none(), Value::none(), Value::of(false)};
  if (!bind_args(in, "tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0,
                 bound)) {
    return Value::error();
  }
  JsonFormat format;
  format.ensure_ascii = in.truth(bound[0]);
  format.sort_keys = in.truth(bound[3]);
  if (!bound[1].is(Kind::none)) {
    format.is_indented = true;
    format.item_separator = ",";
    if (bound[1].is_string()) {
      format.indent = bound[1].text();
    } else if (bound[1].is_int() && bound[1].as_int() < 1024) {
      format.indent.assign(static_cast<std::size_t>(std::max<std::int64_t>(bound[1].as_int(), 0)),
                           ' ');
    } else {
      return in.fail("tojson indent must be a small integer or str");
    }
  }
  if (!bound[2].is(Kind::none)) {
    List* separators = in.list();
    if (!collect(in, bound[2], separators->items)) return Value::error();
    const auto& items = separators->items;
    if (items.size() != 2 || !items[0].is_string() || !items[1].is_string()) {
      return in.fail("tojson separators must be two strings");
    }
    format.item_separator = items[0].text();
    format.key_separator = items[1].text();
  }
  return dump_json(in, self, format);
}

Value from_json(Interp& in, const Value& self, const Args& args) {
  if (!bind_args(in, "from_json", args, {}, 0, nullptr)) return Value::error();
  if (!self.is_string()) {
    return in.fail("the JSON object must be str, bytes or bytearray, not " +
                   std::string(type_name(self)));
  }
  return load_json(in, self.text(), self.string->n_spans > 0);
}

constexpr std::array kFilters = {
    FilterDef{"capitalize", case_filter<Casing::capitalize>},
    FilterDef{"center", center},
    FilterDef{"e", escape_filter<false>},
    FilterDef{"escape", escape_filter<false>},
    FilterDef{"forceescape", escape_filter<true>},
    FilterDef{"format", format_filter},
    FilterDef{"from_json", from_json},
    FilterDef{"indent", indent},
    FilterDef{"join", join_filter},
    FilterDef{"lower", case_filter<Casing::lower>},
    FilterDef{"replace", replace_filter},
    FilterDef{"safe", safe},
    FilterDef{"string", string_filter},
    FilterDef{"title", case_filter<Casing::words>},
    FilterDef{"tojson", tojson},
    FilterDef{"trim", trim},
    FilterDef{"truncate", truncate},
    FilterDef{"upper", case_filter<Casing::upper>},
    FilterDef{"urlencode", urlencode},
    FilterDef{"wordcount", wordcount},
};

}  // namespace

std::span<const FilterDef> text_filters() { return kFilters; }

}  // namespace kvasir::text::tmpl
