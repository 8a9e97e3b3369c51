// Subscripts: a[i], a[start:stop:step].
#pragma once

#include "text/template/interp.h"

namespace kvasir::text::tmpl {

Value slice(
    Interp& in, const Value& object, const Value& start, const Value& stop, const Value& step);
// The index-th item (negative: from the end); kind missing when there is none.
Value item_at(Interp& in, const Value& sequence, std::int64_t index);

}  // namespace kvasir::text::tmpl
