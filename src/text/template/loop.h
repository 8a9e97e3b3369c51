// The `loop` variable of a for loop (TXT-26).
#pragma once

#include "text/template/interp.h"

namespace kvasir::text::tmpl {

struct LoopState {
  Value iterable;  // what is looped over, for its length
  Iter* items = nullptr;
  std::int64_t index0 = -1;
  std::int64_t length = -1;  // -1: not asked for yet
  Value before = Value::bare(Kind::missing);
  Value current = Value::bare(Kind::missing);
  Value after = Value::bare(Kind::missing);  // read ahead
  bool has_changed_value = false;
  Value changed_value;
};

bool next_item(Interp& in, LoopState& loop, Value& out);  // false: the end, or failed
Value loop_attribute(Interp& in,
                     LoopState& loop,
                     std::string_view name);  // missing: no such attribute

}  // namespace kvasir::text::tmpl
