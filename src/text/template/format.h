// Python's two ways to format text: "%s" % values and "{}".format(values). Parts made from content
// stay content.
#pragma once

#include "text/template/interp.h"

namespace kvasir::text::tmpl {

Value percent_format(Interp& in, const Str& format, const Value& values);
Value brace_format(Interp& in, const Str& format, const Args& args);

// A number's or text's layout, shared by both.
struct Layout {
  char32_t fill = ' ';
  char align = '\0';  // < > ^ =, none: the type's own
  char sign = '-';    // - + space
  bool alternate = false;
  bool no_negative_zero = false;
  std::int64_t width = 0;
  char grouping = '\0';  // , or _
  std::int64_t precision = -1;
  char type = '\0';
};
// The mini-language after a field's colon. False: failed.
bool parse_layout(Interp& in, std::string_view spec, Layout& out);
// format(v, layout) appended to out. False: failed.
bool append_formatted(Interp& in, Builder& out, const Value& v, const Layout& layout);
std::string number_text(const Value& v, const Layout& layout);  // digits without sign and padding
bool append_padded(Interp& in,
                   Builder& out,
                   const Str& text,
                   const Layout& layout,
                   char default_align,
                   std::size_t n_sign);

}  // namespace kvasir::text::tmpl
