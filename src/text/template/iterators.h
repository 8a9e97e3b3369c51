// Iteration over values; sized() is Python's len().
#pragma once

#include "text/template/interp.h"

namespace kvasir::text::tmpl {

// Number of items, −1 when the value has none (fails with Python's message when `in` is given).
std::int64_t length_of(Interp* in, const Value& v);
bool is_iterable(const Value& v) noexcept;
// All items; false: failed.
bool collect(Interp& in, const Value& v, std::pmr::vector<Value>& out);
Iter* reversed(Interp& in, const Value& v);  // null without failure: v cannot be walked backwards

// Items of a list that nobody else changes.
struct ListIter final : Iter {
  explicit ListIter(const List* items) : list(items) {}
  bool next(Interp& in, Value& out) override;
  const List* list;
  std::size_t at = 0;
};

}  // namespace kvasir::text::tmpl
