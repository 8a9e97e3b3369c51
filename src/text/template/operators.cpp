#include "text/template/operators.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "text/template/escape.h"
#include "text/template/format.h"
#include "text/template/print.h"

namespace kvasir::text::tmpl {

namespace {

std::string_view symbol(Operator op) {
  switch (op) {
    case Operator::add:
      return "+";
    case Operator::sub:
      return "-";
    case Operator::mul:
      return "*";
    case Operator::div:
      return "/";
    case Operator::floor_div:
      return "//";
    case Operator::mod:
      return "%";
    case Operator::pow:
      return "**";
    case Operator::lt:
      return "<";
    case Operator::le:
      return "<=";
    case Operator::gt:
      return ">";
    case Operator::ge:
      return ">=";
    default:
      return "==";
  }
}

Value bad_operands(Interp& in, Operator op, const Value& a, const Value& b) {
  if (op == Operator::add && a.is_string()) {
    return in.fail("can only concatenate str (not \"" + std::string(type_name(b)) + "\") to str");
  }
  return in.fail("unsupported operand type(s) for " + std::string(symbol(op)) + ": '" +
                 std::string(type_name(a)) + "' and '" + std::string(type_name(b)) + "'");
}

Value too_large(Interp& in) { return in.fail("integer result too large"); }

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  return a / b - ((a % b != 0) && ((a < 0) != (b < 0)) ? 1 : 0);
}

Value int_power(Interp& in, std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return too_large(in);
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return too_large(in);
  }
  return Value::of(result);
}

Value int_binary(Interp& in, Operator op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  const bool divides = op == Operator::div || op == Operator::floor_div || op == Operator::mod;
  if (divides && b == 0) {
    return in.fail(op == Operator::div ? "division by zero" : "integer division or modulo by zero");
  }
  switch (op) {
    case Operator::add:
      return __builtin_add_overflow(a, b, &result) ? too_large(in) : Value::of(result);
    case Operator::sub:
      return __builtin_sub_overflow(a, b, &result) ? too_large(in) : Value::of(result);
    case Operator::mul:
      return __builtin_mul_overflow(a, b, &result) ? too_large(in) : Value::of(result);
    case Operator::div:
      return Value::of(static_cast<double>(a) / static_cast<double>(b));
    case Operator::floor_div:
      if (b == -1) return int_binary(in, Operator::sub, 0, a);
      return Value::of(floor_divide(a, b));
    case Operator::mod:
      return Value::of(b == -1 ? 0 : a - floor_divide(a, b) * b);
    default:
      if (b >= 0) return int_power(in, a, b);
      if (a == 0) return in.fail("0.0 cannot be raised to a negative power");
      return Value::of(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
}

// Python's float modulo: the sign is the divisor's.
double float_mod(double a, double b) {
  double m = std::fmod(a, b);
  if (m == 0) return std::copysign(0.0, b);
  if ((m < 0) != (b < 0)) m += b;
  return m;
}

Value float_power(Interp& in, double a, double b) {
  if (a == 0 && b < 0) return in.fail("0.0 cannot be raised to a negative power");
  if (a < 0 && std::isfinite(b) && b != std::floor(b)) {
    return in.fail("complex numbers are not supported");
  }
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
    return in.fail("(34, 'Numerical result out of range')");
  }
  return Value::of(result);
}

double float_floor_div(double a, double b) {
  const double mod = float_mod(a, b);
  const double quotient = (a - mod) / b;
  double floored = std::floor(quotient);
  if (quotient - floored > 0.5) floored += 1;
  return floored == 0 ? std::copysign(0.0, a / b) : floored;
}

Value float_binary(Interp& in, Operator op, double a, double b) {
  const bool divides = op == Operator::div || op == Operator::floor_div || op == Operator::mod;
  if (divides && b == 0) {
    return in.fail(op == Operator::div         ? "float division by zero"
                   : op == Operator::floor_div ? "float floor division by zero"
                                               : "float modulo");
  }
  switch (op) {
    case Operator::add:
      return Value::of(a + b);
    case Operator::sub:
      return Value::of(a - b);
    case Operator::mul:
      return Value::of(a * b);
    case Operator::div:
      return Value::of(a / b);
    case Operator::floor_div:
      return Value::of(float_floor_div(a, b));
    case Operator::mod:
      return Value::of(float_mod(a, b));
    default:
      return float_power(in, a, b);
  }
}

Value add_strings(Interp& in, Str& a, Str& b) {
  const std::size_t n = a.bytes.size() + b.bytes.size();
  if (n > kMaxTextBytes) return in.fail_limits();
  if (!in.can_take(n) || !in.work(static_cast<std::int64_t>(n / 4))) return Value::error();
  const bool is_markup = a.markup || b.markup;  // then the other side is escaped
  const Str& left = is_markup && !a.markup ? *escape_html(in, a) : a;
  const Str& right = is_markup && !b.markup ? *escape_html(in, b) : b;
  Str* result = concat(in.arena(), left, right);
  result->markup = is_markup;
  return Value::of(result);
}

Value add_lists(Interp& in, const Value& a, const Value& b) {
  const std::size_t n = a.list->items.size() + b.list->items.size();
  if (!in.can_take(n * sizeof(Value))) return Value::error();
  if (!in.work(static_cast<std::int64_t>(n) * kWorkOfItem)) return Value::error();
  List* list = in.list();
  list->items.reserve(n);
  list->items = a.list->items;
  list->items.insert(list->items.end(), b.list->items.begin(), b.list->items.end());
  return a.is(Kind::tuple) ? Value::tuple(list) : Value::of(list);
}

Value repeat(Interp& in, const Value& v, std::int64_t times) {
  times = std::max<std::int64_t>(times, 0);
  const std::size_t n = v.is_string() ? v.text().size() : v.list->items.size() * sizeof(Value);
  if (n > 0 && static_cast<std::size_t>(times) > kMaxTextBytes / n) return in.fail_limits();
  constexpr std::int64_t kPieceWork = 16;  // of adding one, however short
  const std::size_t total = n * static_cast<std::size_t>(times);
  const std::int64_t work = static_cast<std::int64_t>(total) + (n > 0 ? kPieceWork * times : 0);
  if (!in.can_take(total) || !in.work(work)) return Value::error();
  if (n == 0) times = 0;
  if (v.is_string()) {
    Builder out;
    out.reserve(total);
    for (std::int64_t i = 0; i < times; ++i) out.append(*v.string);
    const Value result = in.finish(out);
    if (!result.is_error()) result.string->markup = v.string->markup;
    return result;
  }
  List* list = in.list();
  list->items.reserve(total / sizeof(Value));
  for (std::int64_t i = 0; i < times; ++i) {
    list->items.insert(list->items.end(), v.list->items.begin(), v.list->items.end());
  }
  return v.is(Kind::tuple) ? Value::tuple(list) : Value::of(list);
}

// -1, 0, 1 of two strings by code points: UTF-8's order is the same.
int order(std::string_view a, std::string_view b) { return a.compare(b); }

std::optional<bool> apply_order(Operator op, int sign) {
  switch (op) {
    case Operator::lt:
      return sign < 0;
    case Operator::le:
      return sign <= 0;
    case Operator::gt:
      return sign > 0;
    default:
      return sign >= 0;
  }
}

std::optional<bool> compare_lists(Interp& in, Operator op, const List& a, const List& b, int depth);

std::optional<bool> ordered(Interp& in, Operator op, const Value& a, const Value& b, int depth) {
  if (a.is(Kind::undefined) || b.is(Kind::undefined)) {
    in.fail_undefined(a.is(Kind::undefined) ? a : b);
    return std::nullopt;
  }
  if (a.is_int() && b.is_int()) {
    return apply_order(op, a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int());
  }
  if (a.is_number() && b.is_number()) {
    const double x = a.as_double();
    const double y = b.as_double();
    if (std::isnan(x) || std::isnan(y)) return false;
    return apply_order(op, x < y ? -1 : x > y);
  }
  if (a.is_string() && b.is_string()) return apply_order(op, order(a.text(), b.text()));
  if (a.is_sequence() && a.kind == b.kind) return compare_lists(in, op, *a.list, *b.list, depth);
  in.fail("'" + std::string(symbol(op)) + "' not supported between instances of '" +
          std::string(type_name(a)) + "' and '" + std::string(type_name(b)) + "'");
  return std::nullopt;
}

std::optional<bool> compare_lists(
    Interp& in, Operator op, const List& a, const List& b, int depth) {
  if (depth > kMaxNesting) {
    in.fail_limits();
    return std::nullopt;
  }
  const std::size_t common = std::min(a.items.size(), b.items.size());
  for (std::size_t i = 0; i < common; ++i) {
    if (!in.tick()) return std::nullopt;
    const auto same = equals(in, a.items[i], b.items[i]);
    if (!same) return std::nullopt;
    if (!*same) return ordered(in, op, a.items[i], b.items[i], depth + 1);
  }
  return apply_order(op, a.items.size() < b.items.size() ? -1 : a.items.size() > b.items.size());
}

std::optional<bool> contains_item(Interp& in, const Value& container, const Value& item) {
  Iter* items = in.iterate(container);
  if (items == nullptr) return std::nullopt;
  for (Value candidate; items->next(in, candidate);) {
    const auto same = equals(in, candidate, item);
    if (!same) return std::nullopt;
    if (*same) return true;
  }
  return in.failed() ? std::nullopt : std::optional<bool>(false);
}

}  // namespace

Value binary(Interp& in, Operator op, const Value& a, const Value& b) {
  if (a.is_int() && b.is_int()) return int_binary(in, op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return float_binary(in, op, a.as_double(), b.as_double());
  if (op == Operator::mod && a.is_string()) return percent_format(in, *a.string, b);
  if (a.is(Kind::undefined)) return in.fail_undefined(a);
  if (b.is(Kind::undefined)) return in.fail_undefined(b);
  if (op == Operator::add) {
    if (a.is_string() && b.is_string()) return add_strings(in, *a.string, *b.string);
    if (a.is_sequence() && a.kind == b.kind) return add_lists(in, a, b);
  }
  if (op == Operator::mul) {
    if ((a.is_string() || a.is_sequence()) && b.is_int()) return repeat(in, a, b.as_int());
    if ((b.is_string() || b.is_sequence()) && a.is_int()) return repeat(in, b, a.as_int());
  }
  return bad_operands(in, op, a, b);
}

Value negate(Interp& in, const Value& v, bool is_plus) {
  if (v.is(Kind::undefined)) return in.fail_undefined(v);
  if (!v.is_number()) {
    return in.fail(std::string("bad operand type for unary ") + (is_plus ? "+" : "-") + ": '" +
                   std::string(type_name(v)) + "'");
  }
  if (v.is(Kind::floating)) return Value::of(is_plus ? v.floating : -v.floating);
  return is_plus ? Value::of(v.as_int()) : int_binary(in, Operator::sub, 0, v.as_int());
}

std::optional<bool> equals(Interp& in, const Value& a, const Value& b) {
  std::int64_t steps = kEqualSteps;
  const bool result = equal(a, b, steps);
  if (steps <= 0) {
    in.fail_limits();
    return std::nullopt;
  }
  std::int64_t cost = (kEqualSteps - steps) * kWorkOfItem;
  if (a.is_string() && b.is_string()) cost += static_cast<std::int64_t>(a.text().size() / 16);
  if (!in.work(cost)) return std::nullopt;
  return result;
}

std::optional<bool> compare(Interp& in, Operator op, const Value& a, const Value& b) {
  switch (op) {
    case Operator::eq:
      return equals(in, a, b);
    case Operator::ne: {
      const auto same = equals(in, a, b);
      return same ? std::optional<bool>(!*same) : std::nullopt;
    }
    case Operator::in:
      return contains(in, b, a);
    case Operator::not_in: {
      const auto found = contains(in, b, a);
      return found ? std::optional<bool>(!*found) : std::nullopt;
    }
    default:
      return ordered(in, op, a, b, 0);
  }
}

std::optional<bool> contains(Interp& in, const Value& container, const Value& item) {
  switch (container.kind) {
    case Kind::string:
      if (item.is(Kind::undefined)) {
        in.fail_undefined(item);
        return std::nullopt;
      }
      if (!item.is_string()) {
        in.fail("'in <string>' requires string as left operand, not " +
                std::string(type_name(item)));
        return std::nullopt;
      }
      if (!in.work(static_cast<std::int64_t>(container.text().size()))) return std::nullopt;
      return find_bytes(container.text(), item.text()) != std::string_view::npos;
    case Kind::dict:
      if (!hashable(item)) {
        in.fail("unhashable type: '" + std::string(type_name(item)) + "'");
        return std::nullopt;
      }
      return container.dict->find(item) != nullptr;
    case Kind::undefined:
      return false;
    case Kind::list:
    case Kind::tuple:
    case Kind::range:
    case Kind::dict_view:
    case Kind::iterator:
      return contains_item(in, container, item);
    default:
      in.fail("argument of type '" + std::string(type_name(container)) + "' is not iterable");
      return std::nullopt;
  }
}

bool sort_values(Interp& in, std::pmr::vector<Value>& items, const SortOptions& options) {
  const auto key = [&options](const Value& v) -> const Value& {
    return options.by_pair_member < 0
               ? v
               : v.list->items[static_cast<std::size_t>(options.by_pair_member)];
  };
  // A merge sort of our own: the order may fail half-way, which std::sort's contract does not
  // allow.
  std::vector<Value> from(items.begin(), items.end());
  std::vector<Value> to(from.size());
  for (std::size_t width = 1; width < from.size(); width *= 2) {
    for (std::size_t begin = 0; begin < from.size(); begin += 2 * width) {
      const std::size_t middle = std::min(begin + width, from.size());
      const std::size_t end = std::min(begin + 2 * width, from.size());
      std::size_t left = begin, right = middle;
      for (std::size_t at = begin; at < end; ++at) {
        bool takes_right = left == middle;
        if (left < middle && right < end) {
          if (!in.tick()) return false;
          // Reversed order keeps equal items in place too.
          const auto less = options.reverse
                                ? compare(in, Operator::lt, key(from[left]), key(from[right]))
                                : compare(in, Operator::lt, key(from[right]), key(from[left]));
          if (!less) return false;
          takes_right = *less;
        }
        to[at] = takes_right ? from[right++] : from[left++];
      }
    }
    std::swap(from, to);
  }
  std::copy(from.begin(), from.end(), items.begin());
  return true;
}

std::size_t find_bytes(std::string_view s, std::string_view needle, std::size_t from) {
  if (from > s.size()) return s.npos;
  if (needle.empty()) return from;
  if (needle.size() > s.size() - from) return s.npos;
  const void* found = memmem(s.data() + from, s.size() - from, needle.data(), needle.size());
  if (found == nullptr) return s.npos;
  return static_cast<std::size_t>(static_cast<const char*>(found) - s.data());
}

}  // namespace kvasir::text::tmpl
