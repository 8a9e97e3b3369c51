// "{0.name!r:>10}".format(…).
#include <algorithm>
#include <charconv>
#include <optional>

#include "text/template/format.h"
#include "text/template/print.h"

namespace kvasir::text::tmpl {

namespace {

enum class Numbering { unknown, automatic, manual };

std::optional<std::int64_t> whole_number(std::string_view s) {
  std::int64_t value = 0;
  const auto parsed = std::from_chars(s.data(), s.data() + s.size(), value);
  if (s.empty() || s[0] == '-' || parsed.ec != std::errc() || parsed.ptr != s.data() + s.size()) {
    return std::nullopt;
  }
  return value;
}

class BraceFormatter {
 public:
  BraceFormatter(Interp& in, const Args& args) : in_(in), args_(args) {}

  bool run(const Str& format, Builder& out, int depth) {
    if (depth > 2) return fail("Max string recursion exceeded");
    const std::string_view s = format.bytes;
    if (!in_.work(static_cast<std::int64_t>(s.size()))) return false;
    for (std::size_t at = 0; at < s.size();) {
      const std::size_t brace = std::min(s.find_first_of("{}", at), s.size());
      out.append(format, at, brace);
      if (brace == s.size()) break;
      if (brace + 1 < s.size() && s[brace + 1] == s[brace]) {
        out.append(format, brace, brace + 1);
        at = brace + 2;
        continue;
      }
      if (s[brace] == '}') return fail("Single '}' encountered in format string");
      const std::size_t end = field_end(s, brace + 1);
      if (end == s.npos) {
        return fail(brace + 1 == s.size() ? "Single '{' encountered in format string"
                                          : "expected '}' before end of string");
      }
      if (!in_.tick() || !field(format, brace + 1, end, out, depth)) return false;
      at = end + 1;
    }
    return !in_.failed();
  }

 private:
  bool fail(std::string message) {
    in_.fail(std::move(message));
    return false;
  }

  static std::size_t field_end(std::string_view s, std::size_t at) {
    int open = 1;
    for (; at < s.size(); ++at) {
      if (s[at] == '{') ++open;
      if (s[at] == '}' && --open == 0) return at;
    }
    return s.npos;
  }

  bool field(const Str& format, std::size_t begin, std::size_t end, Builder& out, int depth) {
    const std::string_view s = format.bytes.substr(begin, end - begin);
    std::size_t name_end = 0;
    for (bool in_brackets = false; name_end < s.size(); ++name_end) {
      if (s[name_end] == '[') in_brackets = true;
      if (s[name_end] == ']') in_brackets = false;
      if (!in_brackets && (s[name_end] == ':' || s[name_end] == '!')) break;
    }
    Value v;
    if (!lookup(s.substr(0, name_end), v)) return false;
    std::size_t at = name_end;
    if (at < s.size() && s[at] == '!') {
      if (at + 1 >= s.size()) return fail("end of string while looking for conversion specifier");
      const char conversion = s[at + 1];
      if (conversion == 's')
        v = to_str(in_, v);
      else if (conversion == 'r' || conversion == 'a')
        v = to_repr(in_, v);
      else
        return fail(std::string("Unknown conversion specifier ") + conversion);
      if (v.is_error()) return false;
      at += 2;
      if (at < s.size() && s[at] != ':') return fail("expected ':' after conversion specifier");
    }
    Builder spec;
    if (at < s.size()) {
      const Str* text = sub_str(in_.arena(), format, begin + at + 1, end);
      if (!run(*text, spec, depth + 1)) return false;
    }
    if (v.is(Kind::undefined)) {
      return spec.size() == 0 ? true
                              : fail("unsupported format string passed to Undefined.__format__");
    }
    Layout layout;
    return parse_layout(in_, spec.bytes(), layout) && append_formatted(in_, out, v, layout);
  }

  // "0.name[key]" → value.
  bool lookup(std::string_view path, Value& out) {
    const std::size_t first_end = std::min(path.find_first_of(".["), path.size());
    if (!first(path.substr(0, first_end), out)) return false;
    for (std::size_t at = first_end; at < path.size();) {
      if (path[at] == '.') {
        const std::size_t end = std::min(path.find_first_of(".[", at + 1), path.size());
        out = in_.get_attribute(out, path.substr(at + 1, end - at - 1));
        at = end;
      } else if (path[at] == '[') {
        const std::size_t end = path.find(']', at);
        if (end == path.npos) return fail("Missing ']' in format string");
        const std::string_view key = path.substr(at + 1, end - at - 1);
        const auto index = whole_number(key);
        out = in_.get_item(out, index ? Value::of(*index) : in_.str(key));
        at = end + 1;
      } else {
        return fail("Only '.' or '[' may follow ']' in format field specifier");
      }
      if (out.is_error()) return false;
    }
    return true;
  }

  bool first(std::string_view name, Value& out) {
    std::optional<std::int64_t> index = whole_number(name);
    const Numbering used = name.empty() ? Numbering::automatic : Numbering::manual;
    if (name.empty()) index = next_++;
    if (index) {
      if (numbering_ != Numbering::unknown && numbering_ != used) {
        return fail(
            "cannot switch between automatic field numbering and manual field specification");
      }
      numbering_ = used;
      if (*index >= static_cast<std::int64_t>(args_.positional.size())) {
        return fail("Replacement index " + std::to_string(*index) +
                    " out of range for positional args tuple");
      }
      out = args_.positional[static_cast<std::size_t>(*index)];
      return true;
    }
    for (const Keyword& keyword : args_.keywords) {
      if (keyword.name != name) continue;
      out = keyword.value;
      return true;
    }
    return fail("'" + std::string(name) + "'");
  }

  Interp& in_;
  const Args& args_;
  std::int64_t next_ = 0;
  Numbering numbering_ = Numbering::unknown;
};

}  // namespace

Value brace_format(Interp& in, const Str& format, const Args& args) {
  Builder out;
  if (!BraceFormatter(in, args).run(format, out, 0)) return Value::error();
  return in.finish(out);
}

}  // namespace kvasir::text::tmpl
