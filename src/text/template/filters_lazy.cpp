// Filters whose result is a one-pass generator: nothing is evaluated until somebody asks for an
// item (TXT-23).
#include <algorithm>
#include <array>
#include <charconv>
#include <memory>

#include "text/template/attribute_path.h"
#include "text/template/iterators.h"
#include "text/template/nesting.h"
#include "text/template/registry.h"
#include "text/template/text_ops.h"

namespace kvasir::text::tmpl {

namespace {

// A step of a path: "3" counts as the integer 3.
Value path_part(Interp& in, const Str& whole, std::size_t begin, std::size_t end) {
  const std::string_view text = whole.bytes.substr(begin, end - begin);
  std::int64_t index = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), index);
  const bool is_index = !text.empty() && text[0] != '-' && parsed.ec == std::errc() &&
                        parsed.ptr == text.data() + text.size();
  return is_index ? Value::of(index) : Value::of(sub_str(in.arena(), whole, begin, end));
}

std::string_view text_of(const Value& name) { return name.is_string() ? name.text() : ""; }

// Arguments kept beyond the call that made the generator.
Args keep(Interp& in, const Args& args, std::size_t skip) {
  const auto positional = args.positional.subspan(std::min(skip, args.positional.size()));
  auto* values = static_cast<Value*>(
      in.arena().allocate((positional.size() + 1) * sizeof(Value), alignof(Value)));
  std::uninitialized_copy(positional.begin(), positional.end(), values);
  auto* keywords = static_cast<Keyword*>(
      in.arena().allocate((args.keywords.size() + 1) * sizeof(Keyword), alignof(Keyword)));
  std::uninitialized_copy(args.keywords.begin(), args.keywords.end(), keywords);
  return {{values, positional.size()}, {keywords, args.keywords.size()}};
}

// A generator over `source`; iteration begins with the first item asked for. A false source is
// empty, whatever it is.
struct Lazy : Iter {
  explicit Lazy(const Value& from, bool empty_if_false = true)
      : source(from), checks_truth(empty_if_false) {}
  bool next(Interp& in, Value& out) final {
    const NestingGuard guard(in);
    if (!guard.fits()) return false;
    if (!started) {
      started = true;
      if (!checks_truth || in.truth(source)) items = in.iterate(source);
    }
    return items != nullptr && !in.failed() && step(in, out) && !in.failed();
  }
  virtual bool step(Interp& in, Value& out) = 0;

  Value source;
  bool checks_truth;
  bool started = false;
  Iter* items = nullptr;

 protected:
  ~Lazy() = default;
};

struct MapByAttribute final : Lazy {
  MapByAttribute(const Value& from, AttributePath* to, const Value& value)
      : Lazy(from), path(to), other(value) {}
  bool step(Interp& in, Value& out) override {
    Value item;
    if (!items->next(in, item)) return false;
    out = path->get(in, item, other.is(Kind::none) ? nullptr : &other);
    return !out.is_error();
  }
  AttributePath* path;
  Value other;
};

struct MapByFilter final : Lazy {
  MapByFilter(const Value& from, const Value& named, const Args& kept)
      : Lazy(from), name(named), filter(find_filter(text_of(named))), args(kept) {}
  bool step(Interp& in, Value& out) override {
    Value item;
    if (!items->next(in, item)) return false;
    out = filter != nullptr ? filter->apply(in, item, args)
                            : in.fail("No filter named '" + std::string(text_of(name)) + "'.");
    return !out.is_error();
  }
  Value name;
  const FilterDef* filter;
  Args args;
};

struct Select final : Lazy {
  Select(const Value& from, bool keeps, AttributePath* to, const Value& named, const Args& kept)
      : Lazy(from),
        keeps_holding(keeps),
        path(to),
        name(named),
        test(find_test(text_of(named))),
        args(kept) {}
  bool step(Interp& in, Value& out) override {
    if (test == nullptr && !name.is(Kind::none)) {
      in.fail("No test named '" + std::string(text_of(name)) + "'.");
      return false;
    }
    while (items->next(in, out)) {
      const Value v = path->get(in, out);
      if (v.is_error()) return false;
      const bool holds = test == nullptr ? in.truth(v) : test->holds(in, v, args);
      if (in.failed()) return false;
      if (holds == keeps_holding) return true;
    }
    return false;
  }
  bool keeps_holding;
  AttributePath* path;
  Value name;  // of the test; none: truth
  const TestDef* test;
  Args args;
};

struct Unique final : Lazy {
  Unique(const Value& from, AttributePath* to, bool sensitive, Dict* dict)
      : Lazy(from, false), path(to), is_case_sensitive(sensitive), seen(dict) {}
  bool step(Interp& in, Value& out) override {
    while (items->next(in, out)) {
      Value key = path->get(in, out);
      if (!is_case_sensitive) key = ignore_case(in, key);
      if (key.is_error()) return false;
      if (!hashable(key)) {
        in.fail("unhashable type: '" + std::string(type_name(key)) + "'");
        return false;
      }
      if (seen->find(key) != nullptr) continue;
      seen->set(key, key);
      return true;
    }
    return false;
  }
  AttributePath* path;
  bool is_case_sensitive;
  Dict* seen;
};

struct Batch final : Lazy {
  Batch(const Value& from, std::int64_t count, const Value& filler)
      : Lazy(from, false), size(count), fill(filler) {}
  bool step(Interp& in, Value& out) override {
    List* row = in.list();
    Value item;
    while (static_cast<std::int64_t>(row->items.size()) < size && items->next(in, item)) {
      row->items.push_back(item);
    }
    if (row->items.empty() || in.failed()) return false;
    while (!fill.is(Kind::none) && static_cast<std::int64_t>(row->items.size()) < size) {
      if (!in.tick()) return false;
      row->items.push_back(fill);
    }
    out = Value::of(row);
    return true;
  }
  std::int64_t size;
  Value fill;
};

struct Slices final : Lazy {
  Slices(const Value& from, std::int64_t n, const Value& filler, List* list)
      : Lazy(from, false), slices(n), fill(filler), all(list) {}
  bool step(Interp& in, Value& out) override {
    if (number == 0 && !collect(in, source, all->items)) return false;
    if (number >= slices) return false;
    const auto length = static_cast<std::int64_t>(all->items.size());
    const std::int64_t size = length / slices, extra = length % slices;
    const std::int64_t begin = number * size + std::min(number, extra);
    const std::int64_t end = begin + size + (number < extra ? 1 : 0);
    List* row = in.list();
    row->items.assign(all->items.begin() + begin, all->items.begin() + end);
    if (!fill.is(Kind::none) && number >= extra) row->items.push_back(fill);
    ++number;
    out = Value::of(row);
    return in.tick();
  }
  std::int64_t slices;
  Value fill;
  List* all;
  std::int64_t number = 0;
};

struct Items final : Iter {
  explicit Items(const Value& from) : source(from) {}
  bool next(Interp& in, Value& out) override {
    if (entries == nullptr) {
      Value whole = source;  // undefined has no entries
      if (source.is(Kind::dict)) {
        whole.kind = Kind::dict_view;
        whole.view = in.arena().make<DictView>(DictView{source.dict, ViewPart::items});
      } else if (!source.is(Kind::undefined)) {
        in.fail("Can only get item pairs from a mapping.");
        return false;
      }
      entries = in.iterate(whole);
    }
    return entries->next(in, out);
  }
  Value source;
  Iter* entries = nullptr;
};

struct AttributesOf final : Iter {
  AttributesOf(Iter* from, AttributePath* to) : source(from), path(to) {}
  bool next(Interp& in, Value& out) override {
    Value item;
    if (!source->next(in, item)) return false;
    out = path->get(in, item);
    return !out.is_error();
  }
  Iter* source;
  AttributePath* path;
};

Value map_filter(Interp& in, const Value& self, const Args& args) {
  if (args.positional.empty()) {
    Value bound[2] = {Value::bare(Kind::missing), Value::none()};
    if (args.keywords.empty()) return in.fail("map requires a filter argument");
    if (!bind_args(in, "map", args, {"attribute", "default"}, 1, bound)) return Value::error();
    auto* path = in.arena().make<AttributePath>(in, bound[0]);
    return Value::of(in.arena().make<MapByAttribute>(self, path, bound[1]));
  }
  return Value::of(in.arena().make<MapByFilter>(self, args.positional[0], keep(in, args, 1)));
}

template <bool kKeeps, bool kByAttribute>
Value select_filter(Interp& in, const Value& self, const Args& args) {
  std::size_t used = 0;
  Value attribute = Value::none();
  if (kByAttribute) {
    if (args.positional.empty()) return in.fail("Missing parameter for attribute name");
    attribute = args.positional[used++];
  }
  Value name = Value::none();
  if (args.positional.size() > used) name = args.positional[used++];
  auto* path = in.arena().make<AttributePath>(in, attribute);
  return Value::of(in.arena().make<Select>(self, kKeeps, path, name, keep(in, args, used)));
}

Value unique(Interp& in, const Value& self, const Args& args) {
  Value bound[2] = {Value::of(false), Value::none()};
  if (!bind_args(in, "unique", args, {"case_sensitive", "attribute"}, 0, bound))
    return Value::error();
  auto* path = in.arena().make<AttributePath>(in, bound[1]);
  return Value::of(in.arena().make<Unique>(self, path, in.truth(bound[0]), in.dict()));
}

Value batch(Interp& in, const Value& self, const Args& args) {
  Value bound[2] = {Value{}, Value::none()};
  if (!bind_args(in, "batch", args, {"linecount", "fill_with"}, 1, bound)) return Value::error();
  if (!bound[0].is_int() || bound[0].as_int() < 1) return in.fail("batch size must be positive");
  return Value::of(in.arena().make<Batch>(self, bound[0].as_int(), bound[1]));
}

Value slice_filter(Interp& in, const Value& self, const Args& args) {
  Value bound[2] = {Value{}, Value::none()};
  if (!bind_args(in, "slice", args, {"slices", "fill_with"}, 1, bound)) return Value::error();
  if (!bound[0].is_int() || bound[0].as_int() < 1) return in.fail("slice count must be positive");
  return Value::of(in.arena().make<Slices>(self, bound[0].as_int(), bound[1], in.list()));
}

Value items_filter(Interp& in, const Value& self, const Args& args) {
  if (!bind_args(in, "items", args, {}, 0, nullptr)) return Value::error();
  return Value::of(in.arena().make<Items>(self));
}

constexpr std::array kFilters = {
    FilterDef{"batch", batch},
    FilterDef{"items", items_filter},
    FilterDef{"map", map_filter},
    FilterDef{"reject", select_filter<false, false>},
    FilterDef{"rejectattr", select_filter<false, true>},
    FilterDef{"select", select_filter<true, false>},
    FilterDef{"selectattr", select_filter<true, true>},
    FilterDef{"slice", slice_filter},
    FilterDef{"unique", unique},
};

}  // namespace

AttributePath::AttributePath(Interp& in, const Value& attribute) : parts_(&in.arena()) {
  if (attribute.is(Kind::none)) return;
  if (!attribute.is_string()) {
    parts_.push_back(attribute);
    return;
  }
  const std::string_view text = attribute.text();
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('.', begin), text.size());
    parts_.push_back(path_part(in, *attribute.string, begin, end));
    begin = end + 1;
  }
}

Value AttributePath::get(Interp& in, Value item, const Value* other) const {
  for (const Value& part : parts_) {
    if (!in.tick()) return Value::error();
    item = in.get_item(item, part);
    if (item.is_error()) return item;
    if (other != nullptr && item.is(Kind::undefined)) item = *other;
  }
  return item;
}

Value ignore_case(Interp& in, const Value& v) {
  return v.is_string() ? change_case(in, *v.string, Casing::lower) : v;
}

Iter* map_attribute(Interp& in, Iter* items, const Value& attribute) {
  return in.arena().make<AttributesOf>(items, in.arena().make<AttributePath>(in, attribute));
}

std::span<const FilterDef> lazy_filters() { return kFilters; }

}  // namespace kvasir::text::tmpl
