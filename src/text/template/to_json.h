// Python's json.dumps and json.loads over template values (TXT-23 tojson, from_json).
#pragma once

#include <string>

#include "text/template/interp.h"

namespace kvasir::text::tmpl {

struct JsonFormat {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool is_indented = false;
  std::string indent;  // of one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// The text as a value. Characters made from content stay content. Errors: what JSON cannot hold
// (undefined, generators, functions), unorderable keys, too deep.
Value dump_json(Interp& in, const Value& v, const JsonFormat& format);
// Text → value made by the template (it may be changed); strings take is_content. Error: not JSON.
Value load_json(Interp& in, std::string_view text, bool is_content);

}  // namespace kvasir::text::tmpl
