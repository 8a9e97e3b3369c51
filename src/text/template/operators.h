// Arithmetic, comparison, membership and order of values as Python defines them.
#pragma once

#include <optional>
#include <vector>

#include "text/template/interp.h"

namespace kvasir::text::tmpl {

Value binary(Interp& in, Operator op, const Value& a, const Value& b);
Value negate(Interp& in, const Value& v, bool is_plus);
// nullopt: failed (no such order between these types).
std::optional<bool> compare(Interp& in, Operator op, const Value& a, const Value& b);
std::optional<bool> contains(Interp& in, const Value& container, const Value& item);
std::optional<bool> equals(Interp& in, const Value& a, const Value& b);

struct SortOptions {
  bool reverse = false;
  int by_pair_member = -1;  // items are pairs: order by this member
};
// Stable, by <. False: failed.
bool sort_values(Interp& in, std::pmr::vector<Value>& items, const SortOptions& options);

// Byte offset of needle in s at or behind `from`; npos when absent. Linear whatever the needle.
std::size_t find_bytes(std::string_view s, std::string_view needle, std::size_t from = 0);

}  // namespace kvasir::text::tmpl
