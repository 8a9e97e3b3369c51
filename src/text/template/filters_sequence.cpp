// Filters over whole sequences and mappings (TXT-23).
#include <algorithm>
#include <array>

#include "text/template/attribute_path.h"
#include "text/template/iterators.h"
#include "text/template/operators.h"
#include "text/template/print.h"
#include "text/template/registry.h"

namespace kvasir::text::tmpl {

namespace {

Value length(Interp& in, const Value& self, const Args& args) {
  if (!bind_args(in, "length", args, {}, 0, nullptr)) return Value::error();
  const std::int64_t n = length_of(&in, self);
  return in.failed() ? Value::error() : Value::of(n);
}

Value first(Interp& in, const Value& self, const Args& args) {
  if (!bind_args(in, "first", args, {}, 0, nullptr)) return Value::error();
  Iter* items = in.iterate(self);
  Value item;
  if (items != nullptr && items->next(in, item)) return item;
  return in.failed() ? Value::error() : in.undefined("No first item, sequence was empty.");
}

Value not_reversible(Interp& in, const Value& v) {
  if (in.failed()) return Value::error();
  return in.fail("'" + std::string(type_name(v)) + "' object is not reversible");
}

Value last(Interp& in, const Value& self, const Args& args) {
  if (!bind_args(in, "last", args, {}, 0, nullptr)) return Value::error();
  Iter* items = reversed(in, self);
  if (items == nullptr) return not_reversible(in, self);
  Value item;
  if (items->next(in, item)) return item;
  return in.failed() ? Value::error() : in.undefined("No last item, sequence was empty.");
}

Value list_filter(Interp& in, const Value& self, const Args& args) {
  if (!bind_args(in, "list", args, {}, 0, nullptr)) return Value::error();
  List* items = in.list();
  return collect(in, self, items->items) ? Value::of(items) : Value::error();
}

Value reverse(Interp& in, const Value& self, const Args& args) {
  if (!bind_args(in, "reverse", args, {}, 0, nullptr)) return Value::error();
  if (Iter* items = reversed(in, self); items != nullptr && !self.is_string())
    return Value::of(items);
  if (!is_iterable(self)) return in.fail("argument must be iterable");
  List* items = in.list();
  if (!collect(in, self, items->items)) return Value::error();
  std::reverse(items->items.begin(), items->items.end());
  if (!self.is_string()) return Value::of(items);
  Builder text;
  for (const Value& c : items->items) text.append(*c.string);
  return in.finish(text);
}

// Pairs (keys, item) for every item; keys is the list of the attributes named ("age,name").
bool keyed(Interp& in,
           const Value& source,
           const Value& attribute,
           bool case_sensitive,
           std::pmr::vector<Value>& out) {
  std::vector<AttributePath> paths;
  if (attribute.is_string()) {
    const std::string_view names = attribute.text();
    for (std::size_t begin = 0; begin <= names.size();) {
      const std::size_t end = std::min(names.find(',', begin), names.size());
      const Value name = Value::of(sub_str(in.arena(), *attribute.string, begin, end));
      paths.emplace_back(in, name);
      begin = end + 1;
    }
  } else {
    paths.emplace_back(in, attribute);
  }
  List* items = in.list();
  if (!collect(in, source, items->items)) return false;
  for (const Value& item : items->items) {
    List* keys = in.list();
    for (const AttributePath& path : paths) {
      Value key = path.get(in, item);
      if (!case_sensitive) key = ignore_case(in, key);
      if (key.is_error()) return false;
      keys->items.push_back(key);
    }
    List* pair = in.list();
    pair->items.assign({Value::of(keys), item});
    out.push_back(Value::tuple(pair));
  }
  return true;
}

Value sort(Interp& in, const Value& self, const Args& args) {
  Value bound[3] = {Value::of(false), Value::of(false), Value::none()};
  if (!bind_args(in, "sort", args, {"reverse", "case_sensitive", "attribute"}, 0, bound)) {
    return Value::error();
  }
  List* pairs = in.list();
  if (!keyed(in, self, bound[2], in.truth(bound[1]), pairs->items)) return Value::error();
  const SortOptions options{.reverse = in.truth(bound[0]), .by_pair_member = 0};
  if (!sort_values(in, pairs->items, options)) return Value::error();
  for (Value& pair : pairs->items) pair = pair.list->items[1];
  return Value::of(pairs);
}

Value dictsort(Interp& in, const Value& self, const Args& args) {
  Value bound[3] = {Value::of(false), in.str("key"), Value::of(false)};
  if (!bind_args(in, "dictsort", args, {"case_sensitive", "by", "reverse"}, 0, bound)) {
    return Value::error();
  }
  const bool by_key = bound[1].is_string() && bound[1].text() == "key";
  if (!by_key && !(bound[1].is_string() && bound[1].text() == "value")) {
    return in.fail("You can only sort by either \"key\" or \"value\"");
  }
  if (!self.is(Kind::dict)) {
    if (self.is(Kind::undefined)) return in.fail_undefined(self);
    return in.fail("'" + std::string(type_name(self)) + "' object has no attribute 'items'");
  }
  List* entries = in.list();  // (sort key, (key, value))
  for (const auto& [key, value] : self.dict->entries) {
    Value order = by_key ? key : value;
    if (!in.truth(bound[0])) order = ignore_case(in, order);
    if (order.is_error() || !in.tick()) return Value::error();
    List* entry = in.list();
    entry->items.assign({key, value});
    List* pair = in.list();
    pair->items.assign({order, Value::tuple(entry)});
    entries->items.push_back(Value::tuple(pair));
  }
  const SortOptions options{.reverse = in.truth(bound[2]), .by_pair_member = 0};
  if (!sort_values(in, entries->items, options)) return Value::error();
  for (Value& pair : entries->items) pair = pair.list->items[1];
  return Value::of(entries);
}

Value groupby(Interp& in, const Value& self, const Args& args) {
  Value bound[3] = {Value{}, Value::none(), Value::of(false)};
  if (!bind_args(in, "groupby", args, {"attribute", "default", "case_sensitive"}, 1, bound)) {
    return Value::error();
  }
  const bool case_sensitive = in.truth(bound[2]);
  const Value* other = bound[1].is(Kind::none) ? nullptr : &bound[1];
  const AttributePath path(in, bound[0]);
  List* pairs = in.list();
  List* items = in.list();
  if (!collect(in, self, items->items)) return Value::error();
  for (const Value& item : items->items) {
    Value key = path.get(in, item, other);
    if (!case_sensitive) key = ignore_case(in, key);
    if (key.is_error()) return Value::error();
    List* pair = in.list();
    pair->items.assign({key, item});
    pairs->items.push_back(Value::tuple(pair));
  }
  if (!sort_values(in, pairs->items, {.by_pair_member = 0})) return Value::error();
  List* groups = in.list();
  List* members = nullptr;
  Value previous;
  for (const Value& pair : pairs->items) {
    const auto same = members == nullptr ? false : equals(in, previous, pair.list->items[0]);
    if (!same) return Value::error();
    if (!*same) {
      members = in.list();
      List* group = in.list();
      group->is_group = true;
      // The group is named by its first item, in the case it has there.
      const Value name = path.get(in, pair.list->items[1], other);
      group->items.assign({name, Value::of(members)});
      groups->items.push_back(Value::tuple(group));
      previous = pair.list->items[0];
    }
    members->items.push_back(pair.list->items[1]);
  }
  return in.failed() ? Value::error() : Value::of(groups);
}

template <bool kMax>
Value extreme(Interp& in, const Value& self, const Args& args) {
  Value bound[2] = {Value::of(false), Value::none()};
  if (!bind_args(in, "min", args, {"case_sensitive", "attribute"}, 0, bound)) return Value::error();
  const bool case_sensitive = in.truth(bound[0]);
  const AttributePath path(in, bound[1]);
  Iter* items = in.iterate(self);
  if (items == nullptr) return Value::error();
  Value best, best_key;
  bool has_best = false;
  for (Value item; items->next(in, item);) {
    Value key = path.get(in, item);
    if (!case_sensitive) key = ignore_case(in, key);
    if (key.is_error()) return key;
    const auto better = !has_best ? true
                        : kMax    ? compare(in, Operator::gt, key, best_key)
                                  : compare(in, Operator::lt, key, best_key);
    if (!better) return Value::error();
    if (!*better) continue;
    best = item;
    best_key = key;
    has_best = true;
  }
  if (in.failed()) return Value::error();
  return has_best ? best : in.undefined("No aggregated item, sequence was empty.");
}

Value sum(Interp& in, const Value& self, const Args& args) {
  Value bound[2] = {Value::none(), Value::of(std::int64_t{0})};
  if (!bind_args(in, "sum", args, {"attribute", "start"}, 0, bound)) return Value::error();
  if (bound[1].is_string()) return in.fail("sum() can't sum strings [use ''.join(seq) instead]");
  const AttributePath path(in, bound[0]);
  Iter* items = in.iterate(self);
  if (items == nullptr) return Value::error();
  Value total = bound[1];
  for (Value item; items->next(in, item);) {
    const Value term = path.get(in, item);
    total = term.is_error() ? term : binary(in, Operator::add, total, term);
    if (total.is_error()) return total;
  }
  return in.failed() ? Value::error() : total;
}

Value default_filter(Interp& in, const Value& self, const Args& args) {
  Value bound[2] = {in.str(""), Value::of(false)};
  if (!bind_args(in, "default", args, {"default_value", "boolean"}, 0, bound))
    return Value::error();
  if (self.is(Kind::undefined)) return bound[0];
  return in.truth(bound[1]) && !in.truth(self) ? bound[0] : self;
}

Value attr(Interp& in, const Value& self, const Args& args) {
  Value name;
  if (!bind_args(in, "attr", args, {"name"}, 1, &name)) return Value::error();
  if (!name.is_string()) return in.fail("attribute name must be string");
  if (self.is(Kind::dict) && find_method(self, name.text()) == nullptr) {
    return in.undefined("'dict object' has no attribute '" + std::string(name.text()) + "'");
  }
  return in.get_attribute(self, name.text());
}

constexpr std::array kFilters = {
    FilterDef{"attr", attr},         FilterDef{"count", length},
    FilterDef{"d", default_filter},  FilterDef{"default", default_filter},
    FilterDef{"dictsort", dictsort}, FilterDef{"first", first},
    FilterDef{"groupby", groupby},   FilterDef{"last", last},
    FilterDef{"length", length},     FilterDef{"list", list_filter},
    FilterDef{"max", extreme<true>}, FilterDef{"min", extreme<false>},
    FilterDef{"reverse", reverse},   FilterDef{"sort", sort},
    FilterDef{"sum", sum},
};

const FilterDef* find_in(std::span<const FilterDef> filters, std::string_view name) {
  const auto found = std::find_if(filters.begin(), filters.end(),
                                  [name](const FilterDef& f) { return f.name == name; });
  return found == filters.end() ? nullptr : &*found;
}

}  // namespace

std::span<const FilterDef> sequence_filters() { return kFilters; }

const FilterDef* find_filter(std::string_view name) {
  for (const auto filters :
       {text_filters(), sequence_filters(), lazy_filters(), number_filters()}) {
    if (const FilterDef* found = find_in(filters, name)) return found;
  }
  return nullptr;
}

}  // namespace kvasir::text::tmpl
