// Gives every variable of a parsed template its slot, following Jinja's scoping: `for`, macros,
// `with` and captured blocks have scopes, `if` has none; an assignment inside a scope does not
// change the outer variable.
#pragma once

#include "base/result.h"
#include "text/template/ast.h"

namespace kvasir::text::tmpl {

// Errors: an unknown filter or test outside of a condition, an assignment to `loop`; they name the
// line.
Status resolve_program(Program& program);

}  // namespace kvasir::text::tmpl
