#include "text/template/escape.h"

#include <cstdio>

namespace kvasir::text::tmpl {

namespace {

std::string_view html_entity(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '\'':
      return "&#39;";
    case '"':
      return "&#34;";
    default:
      return {};
  }
}

bool is_unreserved(char c) {  // RFC 3986
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

}  // namespace

Str* escape_html(Interp& in, const Str& s) {
  Builder out;
  std::size_t plain = 0;
  for (std::size_t at = 0; at < s.bytes.size(); ++at) {
    const std::string_view entity = html_entity(s.bytes[at]);
    if (entity.empty()) continue;
    out.append(s, plain, at);
    out.append(entity, s.is_content_at(at));
    plain = at + 1;
  }
  out.append(s, plain, s.bytes.size());
  if (out.overflowed()) in.fail_limits();
  Str* result = make_str(in.arena(), out);
  result->markup = true;
  return result;
}

Value percent_encode(Interp& in, const Str& s, bool is_query) {
  Builder out;
  for (std::size_t at = 0; at < s.bytes.size(); ++at) {
    const char c = s.bytes[at];
    const bool is_content = s.is_content_at(at);
    if (is_unreserved(c) || (c == '/' && !is_query)) {
      out.append(std::string_view(&c, 1), is_content);
    } else if (c == ' ' && is_query) {
      out.append("+", is_content);
    } else {
      char code[4];
      std::snprintf(code, sizeof code, "%%%02X",
                    static_cast<unsigned>(static_cast<unsigned char>(c)));
      out.append(code, is_content);
    }
  }
  return in.finish(out);
}

}  // namespace kvasir::text::tmpl
