#include "text/template/loop.h"

#include "text/template/iterators.h"
#include "text/template/operators.h"

namespace kvasir::text::tmpl {

namespace {

bool peek(Interp& in, LoopState& loop) {  // false: no next item, or failed
  if (!loop.after.is(Kind::missing)) return true;
  Value item;
  if (!loop.items->next(in, item)) return false;
  loop.after = item;
  return true;
}

// The length; a source without one is read to its end.
bool measure(Interp& in, LoopState& loop) {
  if (loop.length >= 0) return true;
  loop.length = length_of(nullptr, loop.iterable);
  if (loop.length >= 0) return true;
  List* rest = in.list();
  for (Value item; loop.items->next(in, item);) rest->items.push_back(item);
  if (in.failed()) return false;
  loop.items = in.arena().make<ListIter>(rest);
  loop.length = static_cast<std::int64_t>(rest->items.size()) + loop.index0 + 1 +
                (loop.after.is(Kind::missing) ? 0 : 1);
  return true;
}

Value cycle(Interp& in, const Value& self, const Args& args) {
  if (args.positional.empty()) return in.fail("no items for cycling given");
  const auto n = static_cast<std::int64_t>(args.positional.size());
  return args.positional[static_cast<std::size_t>(self.loop->index0 % n)];
}

Value changed(Interp& in, const Value& self, const Args& args) {
  LoopState& loop = *self.loop;
  List* values = in.list();
  values->items.assign(args.positional.begin(), args.positional.end());
  const Value now = Value::tuple(values);
  const auto same = equals(in, loop.changed_value, now);
  if (!same) return Value::error();
  if (loop.has_changed_value && *same) return Value::of(false);
  loop.has_changed_value = true;
  loop.changed_value = now;
  return Value::of(true);
}

Value method(Interp& in, LoopState& loop, Native call, std::string_view name) {
  Function* f = in.arena().make<Function>();
  f->call = call;
  f->name = name;
  f->self.kind = Kind::loop;
  f->self.loop = &loop;
  Value v;
  v.kind = Kind::function;
  v.function = f;
  return v;
}

}  // namespace

bool next_item(Interp& in, LoopState& loop, Value& out) {
  if (!loop.after.is(Kind::missing)) {
    out = loop.after;
    loop.after = Value::bare(Kind::missing);
  } else if (!loop.items->next(in, out)) {
    return false;
  }
  ++loop.index0;
  loop.before = loop.current;
  loop.current = out;
  return true;
}

Value loop_attribute(Interp& in, LoopState& loop, std::string_view name) {
  if (name == "index") return Value::of(loop.index0 + 1);
  if (name == "index0") return Value::of(loop.index0);
  if (name == "first") return Value::of(loop.index0 == 0);
  if (name == "depth") return Value::of(std::int64_t{1});
  if (name == "depth0") return Value::of(std::int64_t{0});
  if (name == "cycle") return method(in, loop, cycle, "cycle");
  if (name == "changed") return method(in, loop, changed, "changed");
  if (name == "previtem") {
    return loop.index0 == 0 ? in.undefined("there is no previous item") : loop.before;
  }
  if (name == "last" || name == "nextitem") {
    const bool has_next = peek(in, loop);
    if (in.failed()) return Value::error();
    if (name == "last") return Value::of(!has_next);
    return has_next ? loop.after : in.undefined("there is no next item");
  }
  const bool is_length = name == "length";
  if (!is_length && name != "revindex" && name != "revindex0") return Value::bare(Kind::missing);
  if (!measure(in, loop)) return Value::error();
  if (is_length) return Value::of(loop.length);
  return Value::of(loop.length - loop.index0 - (name == "revindex" ? 0 : 1));
}

}  // namespace kvasir::text::tmpl
