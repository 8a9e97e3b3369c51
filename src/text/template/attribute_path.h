// "address.city" or 0: the path that `map(attribute=…)`, `sort`, `groupby` and their like follow.
#pragma once

#include <memory_resource>
#include <vector>

#include "text/template/interp.h"

namespace kvasir::text::tmpl {

class AttributePath {
 public:
  AttributePath(Interp& in, const Value& attribute);  // none: the item itself

  // Error on failure. other: what an undefined step becomes (null: stays undefined).
  Value get(Interp& in, Value item, const Value* other = nullptr) const;

 private:
  std::pmr::vector<Value> parts_;
};

// Strings in lower case, the rest as it is: how filters compare by default.
Value ignore_case(Interp& in, const Value& v);
Iter* map_attribute(Interp& in, Iter* items, const Value& attribute);

}  // namespace kvasir::text::tmpl
