// Methods of list, tuple and dict (TXT-25).
#include <algorithm>
#include <array>

#include "text/template/iterators.h"
#include "text/template/operators.h"
#include "text/template/print.h"
#include "text/template/registry.h"

namespace kvasir::text::tmpl {

namespace {

Value append(Interp& in, const Value& self, const Args& args) {
  Value item;
  if (!bind_args(in, "append", args, {"object"}, 1, &item)) return Value::error();
  self.list->items.push_back(item);
  return Value::none();
}

Value extend(Interp& in, const Value& self, const Args& args) {
  Value more;
  if (!bind_args(in, "extend", args, {"iterable"}, 1, &more)) return Value::error();
  List* items = in.list();  // apart: the source may be the list itself
  if (!collect(in, more, items->items)) return Value::error();
  self.list->items.insert(self.list->items.end(), items->items.begin(), items->items.end());
  return Value::none();
}

bool shifts(Interp& in, const Value& self) {  // the cost of moving a list's items
  return in.work(static_cast<std::int64_t>(self.list->items.size()) * 3);
}

Value insert(Interp& in, const Value& self, const Args& args) {
  Value bound[2];
  if (!bind_args(in, "insert", args, {"index", "object"}, 2, bound) || !shifts(in, self)) {
    return Value::error();
  }
  if (!bound[0].is_int()) return in.fail("insert() index must be an integer");
  const auto n = static_cast<std::int64_t>(self.list->items.size());
  const std::int64_t i = bound[0].as_int();
  const std::int64_t at = std::clamp<std::int64_t>(i < 0 ? i + n : i, 0, n);
  self.list->items.insert(self.list->items.begin() + at, bound[1]);
  return Value::none();
}

Value list_pop(Interp& in, const Value& self, const Args& args) {
  Value index = Value::of(std::int64_t{-1});
  if (!bind_args(in, "pop", args, {"index"}, 0, &index)) return Value::error();
  if (!index.is_int()) return in.fail("pop() index must be an integer");
  const auto n = static_cast<std::int64_t>(self.list->items.size());
  if (n == 0) return in.fail("pop from empty list");
  const std::int64_t at = index.as_int() < 0 ? index.as_int() + n : index.as_int();
  if (at < 0 || at >= n) return in.fail("pop index out of range");
  if (at != n - 1 && !shifts(in, self)) return Value::error();
  const Value item = self.list->items[static_cast<std::size_t>(at)];
  self.list->items.erase(self.list->items.begin() + at);
  return item;
}

// Position of an item equal to `wanted`, −1 when there is none, −2: failed.
std::int64_t position(Interp& in, const List& list, const Value& wanted) {
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    const auto same = in.tick() ? equals(in, list.items[i], wanted) : std::nullopt;
    if (!same) return -2;
    if (*same) return static_cast<std::int64_t>(i);
  }
  return -1;
}

Value list_remove(Interp& in, const Value& self, const Args& args) {
  Value item;
  if (!bind_args(in, "remove", args, {"value"}, 1, &item)) return Value::error();
  const std::int64_t at = position(in, *self.list, item);
  if (at == -2) return Value::error();
  if (at < 0) return in.fail("list.remove(x): x not in list");
  self.list->items.erase(self.list->items.begin() + at);
  return Value::none();
}

Value list_index(Interp& in, const Value& self, const Args& args) {
  Value item;
  if (!bind_args(in, "index", args, {"value"}, 1, &item)) return Value::error();
  const std::int64_t at = position(in, *self.list, item);
  if (at == -2) return Value::error();
  return at >= 0 ? Value::of(at) : in.fail(short_repr(item) + " is not in list");
}

Value list_count(Interp& in, const Value& self, const Args& args) {
  Value item;
  if (!bind_args(in, "count", args, {"value"}, 1, &item)) return Value::error();
  std::int64_t n = 0;
  for (const Value& candidate : self.list->items) {
    const auto same = in.tick() ? equals(in, candidate, item) : std::nullopt;
    if (!same) return Value::error();
    n += *same ? 1 : 0;
  }
  return Value::of(n);
}

Value list_clear(Interp& in, const Value& self, const Args& args) {
  if (!bind_args(in, "clear", args, {}, 0, nullptr)) return Value::error();
  self.list->items.clear();
  return Value::none();
}

Value list_reverse(Interp& in, const Value& self, const Args& args) {
  if (!bind_args(in, "reverse", args, {}, 0, nullptr) || !shifts(in, self)) return Value::error();
  std::reverse(self.list->items.begin(), self.list->items.end());
  return Value::none();
}

Value list_sort(Interp& in, const Value& self, const Args& args) {
  Value reverse = Value::of(false);
  if (!args.positional.empty()) return in.fail("sort() takes no positional arguments");
  if (!bind_args(in, "sort", args, {"reverse"}, 0, &reverse)) return Value::error();
  return sort_values(in, self.list->items, {.reverse = in.truth(reverse)}) ? Value::none()
                                                                           : Value::error();
}

Value list_copy(Interp& in, const Value& self, const Args& args) {
  if (!bind_args(in, "copy", args, {}, 0, nullptr)) return Value::error();
  if (!in.can_take(self.list->items.size() * sizeof(Value)) || !shifts(in, self)) {
    return Value::error();
  }
  List* copy = in.list();
  copy->items = self.list->items;
  return Value::of(copy);
}

Value dict_get(Interp& in, const Value& self, const Args& args) {
  Value bound[2] = {Value{}, Value::none()};
  if (!args.keywords.empty()) return in.fail("dict.get() takes no keyword arguments");
  if (!bind_args(in, "get", args, {"key", "default"}, 1, bound)) return Value::error();
  if (!hashable(bound[0]))
    return in.fail("unhashable type: '" + std::string(type_name(bound[0])) + "'");
  const Value* found = self.dict->find(bound[0]);
  return found != nullptr ? *found : bound[1];
}

template <ViewPart kPart>
Value dict_view(Interp& in, const Value& self, const Args& args) {
  if (!bind_args(in, "dict view", args, {}, 0, nullptr)) return Value::error();
  Value v;
  v.kind = Kind::dict_view;
  v.view = in.arena().make<DictView>(DictView{self.dict, kPart});
  return v;
}

Value dict_pop(Interp& in, const Value& self, const Args& args) {
  Value bound[2] = {Value{}, Value::bare(Kind::missing)};
  if (!bind_args(in, "pop", args, {"key", "default"}, 1, bound)) return Value::error();
  const Value* found = hashable(bound[0]) ? self.dict->find(bound[0]) : nullptr;
  if (found == nullptr) {
    return bound[1].is(Kind::missing) ? in.fail(short_repr(bound[0])) : bound[1];
  }
  const Value value = *found;
  if (!in.work(static_cast<std::int64_t>(self.dict->size()) * 4 * kWorkOfItem))
    return Value::error();
  self.dict->erase(bound[0]);
  return value;
}

Value dict_popitem(Interp& in, const Value& self, const Args& args) {
  if (!bind_args(in, "popitem", args, {}, 0, nullptr)) return Value::error();
  if (self.dict->size() == 0) return in.fail("'popitem(): dictionary is empty'");
  if (!in.work(static_cast<std::int64_t>(self.dict->size()) * 4 * kWorkOfItem))
    return Value::error();
  List* pair = in.list();
  const auto [key, value] = self.dict->entries.back();
  pair->items.assign({key, value});
  self.dict->erase(key);
  return Value::tuple(pair);
}

Value dict_setdefault(Interp& in, const Value& self, const Args& args) {
  Value bound[2] = {Value{}, Value::none()};
  if (!bind_args(in, "setdefault", args, {"key", "default"}, 1, bound)) return Value::error();
  if (!hashable(bound[0]))
    return in.fail("unhashable type: '" + std::string(type_name(bound[0])) + "'");
  if (const Value* found = self.dict->find(bound[0])) return *found;
  self.dict->set(bound[0], bound[1]);
  return bound[1];
}

Value dict_update(Interp& in, const Value& self, const Args& args) {
  return fill_dict(in, *self.dict, args) ? Value::none() : Value::error();
}

Value dict_clear(Interp& in, const Value& self, const Args& args) {
  if (!bind_args(in, "clear", args, {}, 0, nullptr)) return Value::error();
  self.dict->clear();
  return Value::none();
}

Value dict_copy(Interp& in, const Value& self, const Args& args) {
  if (!bind_args(in, "copy", args, {}, 0, nullptr)) return Value::error();
  Dict* copy = in.dict();
  for (const auto& [key, value] : self.dict->entries) {
    if (!in.tick()) return Value::error();
    copy->set(key, value);
  }
  return Value::of(copy);
}

Value cycler_next(Interp& in, const Value& self, const Args& args) {
  if (!bind_args(in, "next", args, {}, 0, nullptr)) return Value::error();
  Rotation& r = *self.rotation;
  const Value item = r.items->items[r.position];
  r.position = (r.position + 1) % r.items->items.size();
  return item;
}

Value cycler_reset(Interp& in, const Value& self, const Args& args) {
  if (!bind_args(in, "reset", args, {}, 0, nullptr)) return Value::error();
  self.rotation->position = 0;
  return Value::none();
}

// Tuples have the first two.
constexpr std::array kListMethods = {
    FilterDef{"index", list_index},   FilterDef{"count", list_count},
    FilterDef{"copy", list_copy},     FilterDef{"append", append},
    FilterDef{"clear", list_clear},   FilterDef{"extend", extend},
    FilterDef{"insert", insert},      FilterDef{"pop", list_pop},
    FilterDef{"remove", list_remove}, FilterDef{"reverse", list_reverse},
    FilterDef{"sort", list_sort}};

constexpr std::array kDictMethods = {FilterDef{"clear", dict_clear},
                                     FilterDef{"copy", dict_copy},
                                     FilterDef{"get", dict_get},
                                     FilterDef{"items", dict_view<ViewPart::items>},
                                     FilterDef{"keys", dict_view<ViewPart::keys>},
                                     FilterDef{"pop", dict_pop},
                                     FilterDef{"popitem", dict_popitem},
                                     FilterDef{"setdefault", dict_setdefault},
                                     FilterDef{"update", dict_update},
                                     FilterDef{"values", dict_view<ViewPart::values>}};

constexpr std::string_view kChanging[] = {"append",     "clear",   "extend", "insert",
                                          "pop",        "popitem", "remove", "reverse",
                                          "setdefault", "sort",    "update"};

template <std::size_t N>
Native find_in(const std::array<FilterDef, N>& methods, std::size_t n, std::string_view name) {
  const auto* end = methods.begin() + n;
  const auto* found =
      std::find_if(methods.begin(), end, [name](const FilterDef& m) { return m.name == name; });
  return found == end ? nullptr : found->apply;
}

}  // namespace

bool fill_dict(Interp& in, Dict& dict, const Args& args) {
  if (args.positional.size() > 1) {
    in.fail("dict expected at most 1 argument, got " + std::to_string(args.positional.size()));
    return false;
  }
  if (!args.positional.empty()) {
    const Value& source = args.positional[0];
    const bool is_dict = source.is(Kind::dict);
    List* pairs = in.list();
    if (!collect(in, source, pairs->items)) return false;
    for (const Value& item : pairs->items) {
      List* pair = in.list();
      if (is_dict) {
        pair->items.assign({item, *source.dict->find(item)});
      } else if (!collect(in, item, pair->items)) {
        return false;
      }
      if (pair->items.size() != 2 || !hashable(pair->items[0])) {
        in.fail("dictionary update sequence element has length " +
                std::to_string(pair->items.size()) + "; 2 is required");
        return false;
      }
      dict.set(pair->items[0], pair->items[1]);
    }
  }
  for (const Keyword& keyword : args.keywords) dict.set(in.str(keyword.name), keyword.value);
  return !in.failed();
}

bool changes_input(const Value& object, std::string_view name) {
  const bool is_input = (object.is(Kind::list) && object.list->is_input) ||
                        (object.is(Kind::dict) && object.dict->is_input);
  return is_input &&
         std::find(std::begin(kChanging), std::end(kChanging), name) != std::end(kChanging);
}

Native find_method(const Value& object, std::string_view name) {
  switch (object.kind) {
    case Kind::string:
      return find_string_method(name);
    case Kind::list:
      return find_in(kListMethods, kListMethods.size(), name);
    case Kind::tuple:
      return find_in(kListMethods, 2, name);
    case Kind::dict:
      return find_in(kDictMethods, kDictMethods.size(), name);
    case Kind::cycler:
      if (name == "next") return cycler_next;
      return name == "reset" ? cycler_reset : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace kvasir::text::tmpl
