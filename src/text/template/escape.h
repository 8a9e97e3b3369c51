// HTML escaping as markupsafe does it, and percent-encoding; both keep origins.
#pragma once

#include "text/template/interp.h"

namespace kvasir::text::tmpl {

Str* escape_html(Interp& in, const Str& s);  // marked as markup
Value percent_encode(Interp& in,
                     const Str& s,
                     bool is_query);  // '/' stays unless is_query; there ' ' becomes '+'

}  // namespace kvasir::text::tmpl
