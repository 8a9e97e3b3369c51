// The tables of filters, tests and global functions, by name.
#pragma once

#include <span>
#include <string_view>

#include "text/template/value.h"

namespace kvasir::text::tmpl {

struct FilterDef {
  std::string_view name;
  Native apply;  // self = the filtered value
};
struct TestDef {
  std::string_view name;
  // False also on failure (Interp::failed).
  bool (*holds)(Interp&, const Value& value, const Args& args);
};

const FilterDef* find_filter(std::string_view name);
const TestDef* find_test(std::string_view name);
std::span<const FilterDef> global_functions();  // self is unused

// One table a file, chained by find_filter.
std::span<const FilterDef> text_filters();
std::span<const FilterDef> sequence_filters();
std::span<const FilterDef> lazy_filters();
std::span<const FilterDef> number_filters();

// A method of a value; null when it has none of that name.
Native find_method(const Value& object, std::string_view name);
// A method that would change something given to the rendering: templates may not have it.
bool changes_input(const Value& object, std::string_view name);
Native find_string_method(std::string_view name);
// dict(source, **keywords): entries of a mapping or of pairs, then the keywords. False: failed.
bool fill_dict(Interp& in, Dict& dict, const Args& args);

}  // namespace kvasir::text::tmpl
