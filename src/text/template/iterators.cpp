#include "text/template/iterators.h"

#include "base/utf8.h"
#include "text/template/loop.h"

namespace kvasir::text::tmpl {

namespace {

struct TextIter final : Iter {
  explicit TextIter(const Str* text) : s(text) {}
  bool next(Interp& in, Value& out) override {
    if (at >= s->bytes.size() || !in.tick()) return false;
    const std::size_t end = at + decode_utf8(s->bytes.substr(at)).n_bytes;
    Str* c = sub_str(in.arena(), *s, at, end);
    c->markup = false;  // a Markup iterates over plain strings
    out = Value::of(c);
    at = end;
    return true;
  }
  const Str* s;
  std::size_t at = 0;
};

struct RangeIter final : Iter {
  explicit RangeIter(const Range& r) : range(r), left(r.size()) {}
  bool next(Interp& in, Value& out) override {
    if (left <= 0 || !in.tick()) return false;
    out = Value::of(range.start);
    if (--left > 0) range.start += range.step;
    return true;
  }
  Range range;
  std::int64_t left;
};

struct DictIter final : Iter {
  DictIter(Dict* source, ViewPart which) : dict(source), part(which), size(source->size()) {}
  bool next(Interp& in, Value& out) override {
    if (dict->size() != size) {
      in.fail("dictionary changed size during iteration");
      return false;
    }
    if (at >= size || !in.tick()) return false;
    const auto& [key, value] = dict->entries[at++];
    if (part == ViewPart::items) {
      List* pair = in.list();
      pair->items.assign({key, value});
      out = Value::tuple(pair);
    } else {
      out = part == ViewPart::keys ? key : value;
    }
    return true;
  }
  Dict* dict;
  ViewPart part;
  std::size_t size;
  std::size_t at = 0;
};

// The items of a list from its end.
struct BackwardIter final : Iter {
  explicit BackwardIter(const List* items) : list(items), left(items->items.size()) {}
  bool next(Interp& in, Value& out) override {
    if (left == 0 || left > list->items.size() || !in.tick()) return false;
    out = list->items[--left];
    return true;
  }
  const List* list;
  std::size_t left;
};

// What a for loop inside its own `loop` would see: pairs are not needed, the rest of the items are.
struct LoopRestIter final : Iter {
  explicit LoopRestIter(LoopState* state) : loop(state) {}
  bool next(Interp& in, Value& out) override { return next_item(in, *loop, out); }
  LoopState* loop;
};

}  // namespace

bool ListIter::next(Interp& in, Value& out) {
  if (at >= list->items.size() || !in.tick()) return false;
  out = list->items[at++];
  return true;
}

Iter* Interp::iterate(const Value& v) {
  switch (v.kind) {
    case Kind::list:
    case Kind::tuple:
      return arena_.make<ListIter>(v.list);
    case Kind::string:
      return arena_.make<TextIter>(v.string);
    case Kind::dict:
      return arena_.make<DictIter>(v.dict, ViewPart::keys);
    case Kind::dict_view:
      return arena_.make<DictIter>(v.view->dict, v.view->part);
    case Kind::range:
      return arena_.make<RangeIter>(*v.range);
    case Kind::iterator:
      return v.iterator;
    case Kind::undefined:
      return arena_.make<ListIter>(list());
    case Kind::loop:
      return arena_.make<LoopRestIter>(v.loop);
    default:
      if (!v.is_error()) fail("'" + std::string(type_name(v)) + "' object is not iterable");
      return nullptr;
  }
}

bool is_iterable(const Value& v) noexcept {
  switch (v.kind) {
    case Kind::list:
    case Kind::tuple:
    case Kind::string:
    case Kind::dict:
    case Kind::dict_view:
    case Kind::range:
    case Kind::iterator:
    case Kind::loop:
    case Kind::undefined:
      return true;
    default:
      return false;
  }
}

std::int64_t length_of(Interp* in, const Value& v) {
  switch (v.kind) {
    case Kind::list:
    case Kind::tuple:
      return static_cast<std::int64_t>(v.list->items.size());
    case Kind::dict:
      return static_cast<std::int64_t>(v.dict->size());
    case Kind::dict_view:
      return static_cast<std::int64_t>(v.view->dict->size());
    case Kind::range:
      return v.range->size();
    case Kind::undefined:
      return 0;
    case Kind::string:
      if (in != nullptr && v.string->n_chars < 0 &&
          !in->work(static_cast<std::int64_t>(v.text().size()))) {
        return -1;
      }
      return char_count(*v.string);
    case Kind::loop:
      if (in != nullptr) {
        const Value length = loop_attribute(*in, *v.loop, "length");
        return length.is(Kind::integer) ? length.integer : -1;
      }
      return -1;
    default:
      if (in != nullptr && !v.is_error()) {
        in->fail("object of type '" + std::string(type_name(v)) + "' has no len()");
      }
      return -1;
  }
}

bool collect(Interp& in, const Value& v, std::pmr::vector<Value>& out) {
  Iter* items = in.iterate(v);
  if (items == nullptr) return false;
  for (Value item; items->next(in, item);) out.push_back(item);
  return !in.failed();
}

Iter* reversed(Interp& in, const Value& v) {
  if (v.is_sequence()) return in.arena().make<BackwardIter>(v.list);
  const bool has_order = v.is(Kind::range) || v.is(Kind::dict) || v.is(Kind::dict_view) ||
                         v.is_string() || v.is(Kind::undefined);
  if (!has_order) return nullptr;
  List* items = in.list();
  if (!collect(in, v, items->items)) return nullptr;
  return in.arena().make<BackwardIter>(items);
}

}  // namespace kvasir::text::tmpl
