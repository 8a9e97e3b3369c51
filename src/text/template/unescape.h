// Python's string escapes in template literals: \n \x41 \u00e9 \U0001f600 \101; an unknown escape
// stays as it is.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace kvasir::text::tmpl {

// body: between the quotes. Errors: a truncated or impossible \x, \u, \U; \N names.
Result<std::string> unescape(std::string_view body);

}  // namespace kvasir::text::tmpl
