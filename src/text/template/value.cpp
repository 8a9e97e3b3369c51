#include "text/template/value.h"

#include <cmath>
#include <functional>

namespace kvasir::text::tmpl {

namespace {

constexpr std::size_t kScanned = 8;  // a dict of up to this many entries has no table
constexpr int kMaxDepth = 200;       // TXT-30
constexpr int kHashSteps = 1000;     // items of nested tuples; bounds depth too

bool equal_items(const List& a, const List& b, std::int64_t& steps, int depth) noexcept {
  if (a.items.size() != b.items.size()) return false;
  for (std::size_t i = 0; i < a.items.size(); ++i) {
    if (!equal(a.items[i], b.items[i], steps, depth + 1)) return false;
  }
  return true;
}

bool equal_dicts(Dict& a, Dict& b, std::int64_t& steps, int depth) noexcept {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.find(key);
    if (other == nullptr || !equal(value, *other, steps, depth + 1)) return false;
  }
  return true;
}

bool equal_numbers(const Value& a, const Value& b) noexcept {
  if (a.is_int() && b.is_int()) return a.as_int() == b.as_int();
  return a.as_double() == b.as_double();
}

std::uint64_t mix(std::uint64_t x) noexcept {  // splitmix64's finalizer
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Past `steps` items a tuple's rest no longer counts: still one hash for equal values.
std::uint64_t hash_nested(const Value& v, int& steps) noexcept {
  switch (v.kind) {
    case Kind::string:
      return std::hash<std::string_view>{}(v.text());
    case Kind::boolean:
    case Kind::integer:
      return mix(static_cast<std::uint64_t>(v.as_int()));
    case Kind::floating: {  // equal numbers hash equally whatever their type
      const double d = v.floating;
      if (d == std::floor(d) && std::fabs(d) < 9e18) {
        return mix(static_cast<std::uint64_t>(static_cast<std::int64_t>(d)));
      }
      return std::hash<double>{}(d);
    }
    case Kind::tuple: {
      std::uint64_t h = 0x9e3779b97f4a7c15u;
      for (const Value& item : v.list->items) {
        if (--steps < 0) break;
        h = mix(h ^ hash_nested(item, steps));
      }
      return h;
    }
    default:
      return static_cast<std::uint64_t>(v.kind);
  }
}

bool hashable_nested(const Value& v, int& steps) noexcept {
  if (v.is(Kind::list) || v.is(Kind::dict)) return false;
  if (!v.is(Kind::tuple)) return true;
  for (const Value& item : v.list->items) {
    if (--steps < 0 || !hashable_nested(item, steps)) return false;
  }
  return true;
}

bool equal_ranges(const Range& a, const Range& b) noexcept {
  if (a.size() != b.size()) return false;
  if (a.size() == 0) return true;
  return a.start == b.start && (a.size() == 1 || a.step == b.step);
}

}  // namespace

std::string_view type_name(const Value& v) noexcept {
  switch (v.kind) {
    case Kind::error:
    case Kind::missing:
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::floating:
      return "float";
    case Kind::string:
      return "str";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return "tuple";
    case Kind::dict:
      return "dict";
    case Kind::range:
      return "range";
    case Kind::dict_view:
      if (v.view->part == ViewPart::keys) return "dict_keys";
      return v.view->part == ViewPart::values ? "dict_values" : "dict_items";
    case Kind::iterator:
      return "generator";
    case Kind::function:
      return "builtin_function_or_method";
    case Kind::macro:
      return "Macro";
    case Kind::name_space:
      return "Namespace";
    case Kind::loop:
      return "LoopContext";
    case Kind::cycler:
      return "Cycler";
    case Kind::joiner:
      return "Joiner";
  }
  return "object";
}

bool hashable(const Value& v) noexcept {
  int steps = kHashSteps;
  return hashable_nested(v, steps);
}
std::uint64_t hash_value(const Value& v) noexcept {
  int steps = kHashSteps;
  return hash_nested(v, steps);
}

bool equal(const Value& a, const Value& b, std::int64_t& steps, int depth) noexcept {
  if (a.is_number() && b.is_number()) return equal_numbers(a, b);
  if (a.kind != b.kind || depth > kMaxDepth || steps <= 0) return false;
  --steps;
  switch (a.kind) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::string:
      return a.text() == b.text();
    case Kind::list:
    case Kind::tuple:
      return a.list == b.list || equal_items(*a.list, *b.list, steps, depth);
    case Kind::dict:
      return a.dict == b.dict || equal_dicts(*a.dict, *b.dict, steps, depth);
    case Kind::range:
      return equal_ranges(*a.range, *b.range);
    case Kind::dict_view:
      return a.view->dict == b.view->dict && a.view->part == b.view->part;
    case Kind::function:
      return a.function == b.function ||
             (a.function->call == b.function->call &&
              equal(a.function->self, b.function->self, steps, depth + 1));
    default:
      return a.macro == b.macro;
  }
}

std::int64_t Dict::index_of(const Value& key) const noexcept {
  if (table.empty()) {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (equal(entries[i].first, key)) return static_cast<std::int64_t>(i);
    }
    return -1;
  }
  for (std::size_t at = hash_value(key);; ++at) {
    const std::uint32_t entry = table[at & (table.size() - 1)];
    if (entry == 0) return -1;
    if (equal(entries[entry - 1].first, key)) return entry - 1;
  }
}

Value* Dict::find(const Value& key) noexcept {
  const std::int64_t i = index_of(key);
  return i < 0 ? nullptr : &entries[static_cast<std::size_t>(i)].second;
}

Value* Dict::find(std::string_view key) noexcept {
  Str name;
  name.bytes = key;
  return find(Value::of(&name));
}

void Dict::set(const Value& key, const Value& value) {
  if (Value* present = find(key)) {
    *present = value;
    return;
  }
  entries.emplace_back(key, value);
  if (entries.size() <= kScanned) return;
  if (entries.size() * 2 > table.size()) {
    rebuild();
    return;
  }
  std::size_t at = hash_value(key);
  while (table[at & (table.size() - 1)] != 0) ++at;
  table[at & (table.size() - 1)] = static_cast<std::uint32_t>(entries.size());
}

void Dict::rebuild() {
  std::size_t size = 32;
  while (size < entries.size() * 4) size *= 2;
  table.assign(size, 0);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    std::size_t at = hash_value(entries[i].first);
    while (table[at & (size - 1)] != 0) ++at;
    table[at & (size - 1)] = static_cast<std::uint32_t>(i + 1);
  }
}

bool Dict::erase(const Value& key) {
  const std::int64_t i = index_of(key);
  if (i < 0) return false;
  entries.erase(entries.begin() + i);
  if (!table.empty()) rebuild();
  return true;
}

void Dict::clear() {
  entries.clear();
  table.clear();
}

}  // namespace kvasir::text::tmpl
