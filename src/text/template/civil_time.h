// strftime in the C locale, without the process's locale and zone.
#pragma once

#include <string>
#include <string_view>

#include "text/chat_template.h"

namespace kvasir::text::tmpl {

// Directives a A b B c d D e f F g G h H I j k l m M n p r R s S t T u U V w W x X y Y z Z %, with
// glibc's flags - _ 0 ^. Unknown ones stay as they are.
std::string format_time(const CivilTime& time, std::string_view format);

}  // namespace kvasir::text::tmpl
