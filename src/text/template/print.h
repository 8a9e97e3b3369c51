// Python's str() and repr() of values, with origins kept.
#pragma once

#include <string>

#include "text/template/interp.h"

namespace kvasir::text::tmpl {

std::string float_repr(double d);  // shortest text that reads back, as Python prints it
// False: failed (nested too deeply, or the text outgrows the limits).
bool append_str(Interp& in, Builder& out, const Value& v);
bool append_repr(Interp& in, Builder& out, const Value& v);
// str() as a value: a string stays the same value.
Value to_str(Interp& in, const Value& v);
Value to_repr(Interp& in, const Value& v);
std::string short_repr(const Value& v);  // of a dict key or index, for messages

}  // namespace kvasir::text::tmpl
