// Tests: `x is …` (TXT-24).
#include <algorithm>
#include <array>

#include "text/template/iterators.h"
#include "text/template/operators.h"
#include "text/template/print.h"
#include "text/template/registry.h"

namespace kvasir::text::tmpl {

namespace {

bool no_args(Interp& in, const Args& args) { return bind_args(in, "test", args, {}, 0, nullptr); }

template <Kind... kKinds>
bool is_kind(Interp& in, const Value& v, const Args& args) {
  return no_args(in, args) && ((v.kind == kKinds) || ...);
}

bool is_defined(Interp& in, const Value& v, const Args& args) {
  return no_args(in, args) && !v.is(Kind::undefined);
}

template <bool kWanted>
bool is_boolean_value(Interp& in, const Value& v, const Args& args) {
  return no_args(in, args) && v.is(Kind::boolean) && v.boolean == kWanted;
}

bool is_sequence(Interp& in, const Value& v, const Args& args) {
  return no_args(in, args) && (v.is_sequence() || v.is_string() || v.is(Kind::dict) ||
                               v.is(Kind::range) || v.is(Kind::undefined));
}

bool test_iterable(Interp& in, const Value& v, const Args& args) {
  return no_args(in, args) && is_iterable(v);
}

bool is_callable(Interp& in, const Value& v, const Args& args) {
  return no_args(in, args) && (v.is(Kind::function) || v.is(Kind::macro) || v.is(Kind::joiner) ||
                               v.is(Kind::loop) || v.is(Kind::undefined));
}

// value % divisor == wanted
bool remainder_is(Interp& in, const Value& v, const Value& divisor, std::int64_t wanted) {
  const Value rest = binary(in, Operator::mod, v, divisor);
  return !rest.is_error() && equal(rest, Value::of(wanted));
}

template <std::int64_t kRest>
bool parity(Interp& in, const Value& v, const Args& args) {
  return no_args(in, args) && remainder_is(in, v, Value::of(std::int64_t{2}), kRest);
}

bool is_divisible_by(Interp& in, const Value& v, const Args& args) {
  Value divisor;
  return bind_args(in, "divisibleby", args, {"num"}, 1, &divisor) &&
         remainder_is(in, v, divisor, 0);
}

template <Operator kOp>
bool compares(Interp& in, const Value& v, const Args& args) {
  Value other;
  if (!bind_args(in, "test", args, {"other"}, 1, &other)) return false;
  return compare(in, kOp, v, other).value_or(false);
}

template <bool kLower>
bool has_case(Interp& in, const Value& v, const Args& args) {
  const Value text = to_str(in, v);
  if (text.is_error()) return false;
  const Value result = find_string_method(kLower ? "islower" : "isupper")(in, text, args);
  return !result.is_error() && result.boolean;
}

bool is_same_as(Interp& in, const Value& v, const Args& args) {
  Value other;
  if (!bind_args(in, "sameas", args, {"other"}, 1, &other)) return false;
  if (v.kind != other.kind) return false;
  switch (v.kind) {
    case Kind::none:
    case Kind::undefined:
      return true;
    case Kind::boolean:
      return v.boolean == other.boolean;
    case Kind::integer:
      return v.integer == other.integer;
    case Kind::string:
      return v.text() == other.text();
    default:
      return v.macro == other.macro;
  }
}

bool is_escaped(Interp& in, const Value& v, const Args& args) {
  return no_args(in, args) && v.is_string() && v.string->markup;
}

template <bool kFilter>
bool is_known(Interp& in, const Value& v, const Args& args) {
  if (!no_args(in, args) || !v.is_string()) return false;
  return kFilter ? find_filter(v.text()) != nullptr : find_test(v.text()) != nullptr;
}

constexpr std::array kTests = {
    TestDef{"!=", compares<Operator::ne>},
    TestDef{"<", compares<Operator::lt>},
    TestDef{"<=", compares<Operator::le>},
    TestDef{"==", compares<Operator::eq>},
    TestDef{">", compares<Operator::gt>},
    TestDef{">=", compares<Operator::ge>},
    TestDef{"boolean", is_kind<Kind::boolean>},
    TestDef{"callable", is_callable},
    TestDef{"defined", is_defined},
    TestDef{"divisibleby", is_divisible_by},
    TestDef{"eq", compares<Operator::eq>},
    TestDef{"equalto", compares<Operator::eq>},
    TestDef{"escaped", is_escaped},
    TestDef{"even", parity<0>},
    TestDef{"false", is_boolean_value<false>},
    TestDef{"filter", is_known<true>},
    TestDef{"float", is_kind<Kind::floating>},
    TestDef{"ge", compares<Operator::ge>},
    TestDef{"greaterthan", compares<Operator::gt>},
    TestDef{"gt", compares<Operator::gt>},
    TestDef{"in", compares<Operator::in>},
    TestDef{"integer", is_kind<Kind::integer>},
    TestDef{"iterable", test_iterable},
    TestDef{"le", compares<Operator::le>},
    TestDef{"lessthan", compares<Operator::lt>},
    TestDef{"lower", has_case<true>},
    TestDef{"lt", compares<Operator::lt>},
    TestDef{"mapping", is_kind<Kind::dict>},
    TestDef{"ne", compares<Operator::ne>},
    TestDef{"none", is_kind<Kind::none>},
    TestDef{"number", is_kind<Kind::boolean, Kind::integer, Kind::floating>},
    TestDef{"odd", parity<1>},
    TestDef{"sameas", is_same_as},
    TestDef{"sequence", is_sequence},
    TestDef{"string", is_kind<Kind::string>},
    TestDef{"test", is_known<false>},
    TestDef{"true", is_boolean_value<true>},
    TestDef{"undefined", is_kind<Kind::undefined>},
    TestDef{"upper", has_case<false>},
};

}  // namespace

const TestDef* find_test(std::string_view name) {
  const auto* found = std::find_if(kTests.begin(), kTests.end(),
                                   [name](const TestDef& t) { return t.name == name; });
  return found == kTests.end() ? nullptr : found;
}

}  // namespace kvasir::text::tmpl
