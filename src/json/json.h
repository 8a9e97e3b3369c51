// The JSON value, its reader and writer; hides the library. Objects keep insertion order (templates
// and tool arguments need it). Values are plain copies; no thread rule. Reading is bounded by bytes
// and depth (untrusted input).
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace kvasir::json {

class Value;
using Array = std::vector<Value>;
using Member = std::pair<std::string, Value>;

// Members in insertion order; a small object is scanned, lookups never allocate.
class Object {
 public:
  Object() = default;
  Object(std::initializer_list<Member> members);
  const Value* find(
      std::string_view key) const noexcept;  // the last of equal names, as other readers do
  Value* find(std::string_view key) noexcept;
  Value& operator[](std::string_view key);       // inserts null when absent
  void push_back(std::string key, Value value);  // keeps duplicates
  bool erase(std::string_view key);
  std::size_t size() const noexcept;
  bool empty() const noexcept;
  const Member* begin() const noexcept;
  const Member* end() const noexcept;
  Member* begin() noexcept;
  Member* end() noexcept;

 private:
  std::vector<Member> members_;
};

class Value {
 public:
  Value() = default;  // null
  Value(std::nullptr_t) {}
  Value(bool b) : v_(b) {}
  Value(int i) : v_(std::int64_t{i}) {}
  Value(unsigned i) : v_(std::int64_t{i}) {}
  Value(std::int64_t i) : v_(i) {}
  Value(std::uint64_t i);  // an int up to INT64_MAX, above it a uint
  Value(double d) : v_(d) {}
  Value(const char* s) : v_(std::string(s)) {}
  Value(std::string s) : v_(std::move(s)) {}
  Value(std::string_view s) : v_(std::string(s)) {}
  Value(Array a) : v_(std::move(a)) {}
  Value(Object o) : v_(std::move(o)) {}

  bool is_null() const noexcept { return v_.index() == 0; }
  bool is_bool() const noexcept { return v_.index() == 1; }
  bool is_int() const noexcept { return v_.index() == 2; }
  bool is_double() const noexcept { return v_.index() == 3; }
  bool is_uint() const noexcept { return v_.index() == 7; }  // above INT64_MAX only
  bool is_number() const noexcept { return is_int() || is_double() || is_uint(); }
  bool is_string() const noexcept { return v_.index() == 4; }
  bool is_array() const noexcept { return v_.index() == 5; }
  bool is_object() const noexcept { return v_.index() == 6; }

  // Pointers: null when the value has another type.
  const bool* as_bool() const noexcept { return std::get_if<bool>(&v_); }
  const std::int64_t* as_int() const noexcept { return std::get_if<std::int64_t>(&v_); }
  const std::uint64_t* as_uint() const noexcept { return std::get_if<std::uint64_t>(&v_); }
  std::optional<double> as_number() const noexcept;  // int, uint or double
  const std::string* as_string() const noexcept { return std::get_if<std::string>(&v_); }
  const Array* as_array() const noexcept { return std::get_if<Array>(&v_); }
  Array* as_array() noexcept { return std::get_if<Array>(&v_); }
  const Object* as_object() const noexcept { return std::get_if<Object>(&v_); }
  Object* as_object() noexcept { return std::get_if<Object>(&v_); }

  // Member of an object; null pointer when this is no object or has no such member.
  const Value* find(std::string_view key) const noexcept;
  // Typed members with a default: the default also when the type differs or the member is null.
  std::int64_t int_or(std::string_view key, std::int64_t other) const noexcept;
  double number_or(std::string_view key, double other) const noexcept;
  bool bool_or(std::string_view key, bool other) const noexcept;
  std::string string_or(std::string_view key, std::string_view other) const;

 private:
  std::
      variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object, std::uint64_t>
          v_;
};

// Here, where a Member is a complete type (clang asks for it).
inline std::size_t Object::size() const noexcept { return members_.size(); }
inline bool Object::empty() const noexcept { return members_.empty(); }
inline const Member* Object::begin() const noexcept { return members_.data(); }
inline const Member* Object::end() const noexcept { return members_.data() + members_.size(); }
inline Member* Object::begin() noexcept { return members_.data(); }
inline Member* Object::end() noexcept { return members_.data() + members_.size(); }

struct ParseLimits {
  std::size_t max_bytes = 64u << 20;
  std::size_t max_depth = 128;
};

// UTF-8 JSON text (RFC 8259) → value. Errors say what was wrong. Duplicate member names are kept
// (Object::find gives the last); numbers beyond f64 are errors.
Result<Value> parse(std::string_view text, const ParseLimits& limits = {});

enum class Style : std::uint8_t { compact, pretty };  // {"a":1}  |  two-space indented lines
// Writes UTF-8 as it is; escapes only what JSON requires. Non-finite numbers become null. Doubles
// print shortest round-trip, always with a '.' or exponent.
std::string write(const Value& value, Style style = Style::compact);
void append_quoted(std::string& out,
                   std::string_view text);  // the JSON string literal of text, with quotes

}  // namespace kvasir::json
