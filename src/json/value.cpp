#include <limits>

#include "json/json.h"

namespace kvasir::json {

Object::Object(std::initializer_list<Member> members) : members_(members) {}

const Value* Object::find(std::string_view key) const noexcept {
  for (auto it = members_.rbegin(); it != members_.rend(); ++it) {
    if (it->first == key) return &it->second;
  }
  return nullptr;
}

Value* Object::find(std::string_view key) noexcept {
  return const_cast<Value*>(std::as_const(*this).find(key));
}

Value& Object::operator[](std::string_view key) {
  if (Value* found = find(key)) return *found;
  return members_.emplace_back(std::string(key), Value()).second;
}

void Object::push_back(std::string key, Value value) {
  members_.emplace_back(std::move(key), std::move(value));
}

bool Object::erase(std::string_view key) {
  return std::erase_if(members_, [&](const Member& m) { return m.first == key; }) > 0;
}

Value::Value(std::uint64_t i) {
  if (i <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    v_ = static_cast<std::int64_t>(i);
  } else {
    v_ = i;
  }
}

std::optional<double> Value::as_number() const noexcept {
  if (const auto* i = as_int()) return static_cast<double>(*i);
  if (const auto* u = as_uint()) return static_cast<double>(*u);
  if (const auto* d = std::get_if<double>(&v_)) return *d;
  return std::nullopt;
}

const Value* Value::find(std::string_view key) const noexcept {
  const Object* object = as_object();
  return object ? object->find(key) : nullptr;
}

std::int64_t Value::int_or(std::string_view key, std::int64_t other) const noexcept {
  const Value* v = find(key);
  if (!v) return other;
  if (const auto* i = v->as_int()) return *i;
  const auto d = v->as_number();  // 1e6 in a config is an integer too
  const bool integral = d && *d >= -0x1p53 && *d <= 0x1p53 &&
                        *d == static_cast<double>(static_cast<std::int64_t>(*d));
  return integral ? static_cast<std::int64_t>(*d) : other;
}

double Value::number_or(std::string_view key, double other) const noexcept {
  const Value* v = find(key);
  return v ? v->as_number().value_or(other) : other;
}

bool Value::bool_or(std::string_view key, bool other) const noexcept {
  const Value* v = find(key);
  const bool* b = v ? v->as_bool() : nullptr;
  return b ? *b : other;
}

std::string Value::string_or(std::string_view key, std::string_view other) const {
  const Value* v = find(key);
  const std::string* s = v ? v->as_string() : nullptr;
  return s ? *s : std::string(other);
}

}  // namespace kvasir::json
