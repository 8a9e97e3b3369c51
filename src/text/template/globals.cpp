// Functions a template can call by name (TXT-26).
#include <array>

#include "text/template/civil_time.h"
#include "text/template/print.h"
#include "text/template/registry.h"

namespace kvasir::text::tmpl {

namespace {

constexpr std::int64_t kMaxRange = 1'000'000;

Value range(Interp& in, const Value&, const Args& args) {
  if (!args.keywords.empty()) return in.fail("range() takes no keyword arguments");
  const std::size_t n = args.positional.size();
  if (n < 1 || n > 3) {
    return in.fail("range expected 1 to 3 arguments, got " + std::to_string(n));
  }
  for (const Value& v : args.positional) {
    if (v.is(Kind::undefined)) return in.fail_undefined(v);
    if (!v.is_int()) {
      return in.fail("'" + std::string(type_name(v)) +
                     "' object cannot be interpreted as an integer");
    }
  }
  Range* r = in.arena().make<Range>();
  r->start = n == 1 ? 0 : args.positional[0].as_int();
  r->stop = args.positional[n == 1 ? 0 : 1].as_int();
  r->step = n == 3 ? args.positional[2].as_int() : 1;
  if (r->step == 0) return in.fail("range() arg 3 must not be zero");
  constexpr std::int64_t kBound = std::int64_t{1} << 40;  // keeps every sum inside int64
  for (const std::int64_t i : {r->start, r->stop, r->step}) {
    if (i > kBound || i < -kBound) return in.fail("range() argument too large");
  }
  if (r->size() > kMaxRange) {
    return in.fail("Range too big. The sandbox blocks ranges larger than " +
                   std::to_string(kMaxRange));
  }
  Value v;
  v.kind = Kind::range;
  v.range = r;
  return v;
}

Value raise_exception(Interp& in, const Value&, const Args& args) {
  Value message;
  if (!bind_args(in, "raise_exception", args, {"message"}, 1, &message)) return Value::error();
  const Value text = to_str(in, message);
  return text.is_error() ? text : in.fail(std::string(text.text()));
}

Value strftime_now(Interp& in, const Value&, const Args& args) {
  Value format;
  if (!bind_args(in, "strftime_now", args, {"format"}, 1, &format)) return Value::error();
  if (!format.is_string()) return in.fail("strftime() argument must be str");
  return in.str(format_time(in.options().now, format.text()));
}

Value dict(Interp& in, const Value&, const Args& args) {
  Dict* d = in.dict();
  return fill_dict(in, *d, args) ? Value::of(d) : Value::error();
}

Value name_space(Interp& in, const Value&, const Args& args) {
  Dict* d = in.dict();
  if (!fill_dict(in, *d, args)) return Value::error();
  Value v = Value::of(d);
  v.kind = Kind::name_space;
  return v;
}

Value rotation(Interp& in, Kind kind, std::span<const Value> items) {
  Value v;
  v.kind = kind;
  v.rotation = in.arena().make<Rotation>();
  v.rotation->items = in.list();
  v.rotation->items->items.assign(items.begin(), items.end());
  return v;
}

Value cycler(Interp& in, const Value&, const Args& args) {
  if (args.positional.empty() || !args.keywords.empty()) {
    return in.fail("at least one item has to be provided");
  }
  return rotation(in, Kind::cycler, args.positional);
}

Value joiner(Interp& in, const Value&, const Args& args) {
  Value separator = in.str(", ");
  if (!bind_args(in, "joiner", args, {"sep"}, 0, &separator)) return Value::error();
  return rotation(in, Kind::joiner, {&separator, 1});
}

constexpr std::array kGlobals = {FilterDef{"cycler", cycler},
                                 FilterDef{"dict", dict},
                                 FilterDef{"joiner", joiner},
                                 FilterDef{"namespace", name_space},
                                 FilterDef{"raise_exception", raise_exception},
                                 FilterDef{"range", range},
                                 FilterDef{"strftime_now", strftime_now}};

}  // namespace

std::span<const FilterDef> global_functions() { return kGlobals; }

}  // namespace kvasir::text::tmpl
