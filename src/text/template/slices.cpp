#include "text/template/slices.h"

#include <algorithm>
#include <optional>

#include "base/utf8.h"
#include "text/template/iterators.h"

namespace kvasir::text::tmpl {

namespace {

struct Bounds {
  std::int64_t start, stop, step, count;
};

// A slice's part: nullopt for none; fails for what is no integer.
std::optional<std::int64_t> part_of(Interp& in, const Value& v) {
  if (v.is_int()) return v.as_int();
  if (!v.is(Kind::none)) {
    in.fail("slice indices must be integers or None or have an __index__ method");
  }
  return std::nullopt;
}

// Python's slice.indices(n).
std::optional<Bounds> bounds_of(
    Interp& in, std::int64_t n, const Value& start, const Value& stop, const Value& step) {
  const auto a = part_of(in, start);
  const auto b = part_of(in, stop);
  const std::int64_t s = part_of(in, step).value_or(1);
  if (s == 0) in.fail("slice step cannot be zero");
  if (in.failed()) return std::nullopt;
  const std::int64_t low = s > 0 ? 0 : -1;
  const std::int64_t high = s > 0 ? n : n - 1;
  const auto clamp = [&](std::int64_t i) { return std::clamp(i < 0 ? i + n : i, low, high); };
  Bounds bounds{.start = a ? clamp(*a) : (s > 0 ? low : high),
                .stop = b ? clamp(*b) : (s > 0 ? high : low),
                .step = s,
                .count = 0};
  const std::int64_t distance = s > 0 ? bounds.stop - bounds.start : bounds.start - bounds.stop;
  // |step| as unsigned: the most negative one has no positive twin.
  const std::uint64_t stride =
      s > 0 ? static_cast<std::uint64_t>(s) : 0 - static_cast<std::uint64_t>(s);
  if (distance > 0) {
    bounds.count =
        static_cast<std::int64_t>((static_cast<std::uint64_t>(distance) - 1) / stride + 1);
  }
  return bounds;
}

Value slice_text(Interp& in, Str& s, const Bounds& b) {
  if (b.count == 0) return Value::of(view_str(in.arena(), {}));
  if (!in.work(static_cast<std::int64_t>(s.bytes.size()) / 8)) return Value::error();
  const bool ascii = char_count(s) == static_cast<std::int64_t>(s.bytes.size());
  const auto byte_of = [&](std::int64_t i) {
    return ascii ? static_cast<std::size_t>(i) : char_to_byte(s.bytes, i);
  };
  if (b.step == 1) {
    const std::size_t begin = byte_of(b.start);
    const std::size_t end = ascii ? static_cast<std::size_t>(b.stop)
                                  : begin + char_to_byte(s.bytes.substr(begin), b.stop - b.start);
    return Value::of(sub_str(in.arena(), s, begin, end));
  }
  std::vector<std::size_t> offsets;  // of every character, and the end
  for (std::size_t at = 0; at < s.bytes.size();) {
    offsets.push_back(at);
    at += decode_utf8(s.bytes.substr(at)).n_bytes;
  }
  offsets.push_back(s.bytes.size());
  if (!in.work(static_cast<std::int64_t>(offsets.size()) * 8)) return Value::error();
  Builder out;
  for (std::int64_t i = 0, at = b.start; i < b.count; ++i, at += b.step) {
    out.append(s, offsets[static_cast<std::size_t>(at)], offsets[static_cast<std::size_t>(at) + 1]);
    if (i + 1 == b.count) break;  // the next step may leave int64
  }
  return in.finish(out);
}

Value slice_list(Interp& in, const Value& v, const Bounds& b) {
  const auto count = static_cast<std::size_t>(b.count);
  if (!in.can_take(count * sizeof(Value))) return Value::error();
  if (!in.work(b.count * kWorkOfItem)) return Value::error();
  List* out = in.list();
  out->items.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    out->items.push_back(
        v.list->items[static_cast<std::size_t>(b.start + static_cast<std::int64_t>(i) * b.step)]);
  }
  return v.is(Kind::tuple) ? Value::tuple(out) : Value::of(out);
}

}  // namespace

Value slice(
    Interp& in, const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is(Kind::undefined)) return in.fail_undefined(object);
  if (object.is(Kind::dict)) return in.fail("unhashable type: 'slice'");
  if (!object.is_string() && !object.is_sequence() && !object.is(Kind::range)) {
    return in.fail("'" + std::string(type_name(object)) + "' object is not subscriptable");
  }
  const std::int64_t n = length_of(&in, object);
  const auto bounds = in.failed() ? std::nullopt : bounds_of(in, n, start, stop, step);
  if (!bounds) return Value::error();
  if (object.is_string()) return slice_text(in, *object.string, *bounds);
  if (object.is_sequence()) return slice_list(in, object, *bounds);
  const Range& r = *object.range;
  Range* part = in.arena().make<Range>();
  std::int64_t step_size = 0;
  if (__builtin_mul_overflow(r.step, bounds->step, &step_size)) return in.fail("range too large");
  *part = {r.start + bounds->start * r.step, r.start + bounds->stop * r.step, step_size};
  Value v;
  v.kind = Kind::range;
  v.range = part;
  return v;
}

Value item_at(Interp& in, const Value& sequence, std::int64_t index) {
  const std::int64_t n = length_of(&in, sequence);
  if (in.failed()) return Value::error();
  if (index < 0) index += n;
  if (index < 0 || index >= n) return Value::bare(Kind::missing);
  if (sequence.is_sequence()) return sequence.list->items[static_cast<std::size_t>(index)];
  if (sequence.is(Kind::range))
    return Value::of(sequence.range->start + index * sequence.range->step);
  const Str& s = *sequence.string;
  if (n == static_cast<std::int64_t>(s.bytes.size())) {
    const auto at = static_cast<std::size_t>(index);
    return Value::of(sub_str(in.arena(), s, at, at + 1));
  }
  if (!in.work(static_cast<std::int64_t>(s.bytes.size()))) return Value::error();
  const std::size_t begin = char_to_byte(s.bytes, index);
  const std::size_t end = begin + decode_utf8(s.bytes.substr(begin)).n_bytes;
  return Value::of(sub_str(in.arena(), s, begin, end));
}

}  // namespace kvasir::text::tmpl
