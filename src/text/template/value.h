// The value model (TXT-27): Python's types as far as templates can see them. A Value is a plain
// 16-byte copy; what it points to lives in the rendering's Arena (or, for literals, in the compiled
// template).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/str.h"

namespace kvasir::text::tmpl {

class Interp;
struct Dict;
struct Function;
struct Iter;
struct List;
struct LoopState;
struct MacroValue;
struct Rotation;

enum class Kind : std::uint8_t {
  error,    // evaluation failed; the message is in the Interp
  missing,  // a variable that has no value (yet)
  undefined,
  none,
  boolean,
  integer,
  floating,
  string,
  list,
  tuple,
  dict,
  range,
  dict_view,
  iterator,  // one pass: generators, reversed()
  function,
  macro,
  name_space,
  loop,
  cycler,
  joiner,
};

struct Range {
  std::int64_t start = 0, stop = 0, step = 1;
  std::int64_t size() const noexcept {
    if (step > 0 ? start >= stop : start <= stop) return 0;
    return step > 0 ? (stop - start - 1) / step + 1 : (start - stop - 1) / -step + 1;
  }
};

enum class ViewPart : std::uint8_t { keys, values, items };
struct DictView {
  Dict* dict = nullptr;
  ViewPart part = ViewPart::keys;
};

struct Value {
  Kind kind = Kind::undefined;
  union {
    bool boolean;
    std::int64_t integer = 0;
    double floating;
    Str* string;  // of undefined: why (may be null)
    List* list;   // list and tuple
    Dict* dict;   // dict and namespace
    Range* range;
    DictView* view;
    Iter* iterator;
    Function* function;
    MacroValue* macro;
    LoopState* loop;
    Rotation* rotation;  // cycler and joiner
  };

  static Value of(bool b) {
    Value v;
    v.kind = Kind::boolean;
    v.boolean = b;
    return v;
  }
  static Value of(std::int64_t i) {
    Value v;
    v.kind = Kind::integer;
    v.integer = i;
    return v;
  }
  static Value of(double d) {
    Value v;
    v.kind = Kind::floating;
    v.floating = d;
    return v;
  }
  static Value of(Str* s) {
    Value v;
    v.kind = Kind::string;
    v.string = s;
    return v;
  }
  static Value of(List* l) {
    Value v;
    v.kind = Kind::list;
    v.list = l;
    return v;
  }
  static Value of(Dict* d) {
    Value v;
    v.kind = Kind::dict;
    v.dict = d;
    return v;
  }
  static Value of(Iter* i) {
    Value v;
    v.kind = Kind::iterator;
    v.iterator = i;
    return v;
  }
  static Value tuple(List* l) {
    Value v;
    v.kind = Kind::tuple;
    v.list = l;
    return v;
  }
  static Value bare(Kind kind) {
    Value v;
    v.kind = kind;
    return v;
  }
  static Value none() { return bare(Kind::none); }
  static Value error() { return bare(Kind::error); }

  bool is(Kind k) const noexcept { return kind == k; }
  bool is_error() const noexcept { return kind == Kind::error; }
  bool is_string() const noexcept { return kind == Kind::string; }
  bool is_sequence() const noexcept { return kind == Kind::list || kind == Kind::tuple; }
  bool is_int() const noexcept { return kind == Kind::integer || kind == Kind::boolean; }
  bool is_number() const noexcept { return is_int() || kind == Kind::floating; }
  std::int64_t as_int() const noexcept { return kind == Kind::boolean ? boolean : integer; }
  double as_double() const noexcept {
    return kind == Kind::floating ? floating : static_cast<double>(as_int());
  }
  std::string_view text() const noexcept { return string->bytes; }  // of a string
};
static_assert(sizeof(Value) == 16);

struct List {
  explicit List(std::pmr::memory_resource* memory) : items(memory) {}
  std::pmr::vector<Value> items;
  bool is_input = false;  // given to the rendering: a template may not change it
  bool is_group = false;  // a groupby result: a tuple with .grouper and .list
};

// Insertion-ordered; keys are Python's hashable values. Lookups of keys that cannot be hashed are
// the caller's business (hashable()).
struct Dict {
  explicit Dict(std::pmr::memory_resource* memory) : entries(memory), table(memory) {}

  Value* find(const Value& key) noexcept;
  Value* find(std::string_view key) noexcept;
  void set(const Value& key, const Value& value);
  bool erase(const Value& key);
  void clear();
  std::size_t size() const noexcept { return entries.size(); }

  std::pmr::vector<std::pair<Value, Value>> entries;
  bool is_input = false;

 private:
  std::int64_t index_of(const Value& key) const noexcept;
  void rebuild();

  std::pmr::vector<std::uint32_t>
      table;  // entry + 1 by hash, open addressing; empty while few entries
};

struct Keyword {
  std::string_view name;
  Value value;
};
struct Args {
  std::span<const Value> positional;
  std::span<const Keyword> keywords;
};

using Native = Value (*)(Interp&, const Value& self, const Args& args);
struct Function {
  Native call = nullptr;
  Value self;
  std::string_view name;
};

struct Rotation {  // cycler: items in turn; joiner: empty first, then items[0]
  List* items = nullptr;
  std::size_t position = 0;
};

std::string_view type_name(const Value& v) noexcept;  // Python's, as in error messages
bool hashable(const Value& v) noexcept;
std::uint64_t hash_value(const Value& v) noexcept;
// Python's ==. Containers are compared to a bounded depth and with a bounded number of steps
// (shared parts make a small value exponentially large); steps_left 0 afterwards means that the
// answer is not known.
inline constexpr std::int64_t kEqualSteps = std::int64_t{1} << 20;
bool equal(const Value& a, const Value& b, std::int64_t& steps_left, int depth = 0) noexcept;
inline bool equal(const Value& a, const Value& b) noexcept {
  std::int64_t steps_left = kEqualSteps;
  return equal(a, b, steps_left);
}

}  // namespace kvasir::text::tmpl
