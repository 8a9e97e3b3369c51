// Reads typed fields of one JSON object until one is wrong; the first error stays. Texts are those
// of SAMP-41. Private to sampling/.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "json/json.h"

namespace kvasir::sampling::detail {

inline std::string type_text(std::string_view field, std::string_view type) {
  return std::string(field) + " must be of type " + std::string(type);
}
inline std::string at_least(std::string_view field, std::string_view bound) {
  return std::string(field) + " must be at least " + std::string(bound);
}
inline std::string at_most(std::string_view field, std::string_view bound) {
  return std::string(field) + " must be at most " + std::string(bound);
}

inline std::uint32_t clamp_u32(std::int64_t v) {
  return static_cast<std::uint32_t>(
      std::min<std::int64_t>(v, std::numeric_limits<std::uint32_t>::max()));
}

inline constexpr std::string_view kNumberType = "('float', 'int')";

class FieldReader {
 public:
  // `path` ("hlg.") goes before the names of a nested object's fields; there null is unset.
  explicit FieldReader(const json::Value& body, std::string path = {})
      : body_(body), path_(std::move(path)) {}

  const Status& status() const noexcept { return status_; }

  std::optional<bool> boolean(std::string_view field) {
    const json::Value* v = find(field);
    if (!v) return std::nullopt;
    if (const bool* b = v->as_bool()) return *b;
    return fail(type_text(name(field), "bool"));
  }

  // An int ≥ 0, or `also`.
  std::optional<std::int64_t> integer(std::string_view field,
                                      std::optional<std::int64_t> also = std::nullopt) {
    const json::Value* v = find(field);
    if (!v) return std::nullopt;
    const std::int64_t* i = v->as_int();
    if (!i) return fail(type_text(name(field), "int"));
    if (*i < 0 && *i != also) return fail(at_least(name(field), "0"));
    return *i;
  }
  std::optional<std::uint32_t> count(std::string_view field) {
    const auto i = integer(field);
    return i ? std::optional(clamp_u32(*i)) : std::nullopt;
  }

  enum class Bounds { none, not_negative, unit };
  std::optional<double> real(std::string_view field, Bounds bounds) {
    const json::Value* v = find(field);
    if (!v) return std::nullopt;
    const std::optional<double> d = v->as_number();
    if (!d) return fail(type_text(name(field), kNumberType));
    if (bounds != Bounds::none && *d < 0) return fail(at_least(name(field), "0"));
    if (bounds == Bounds::unit && *d > 1) return fail(at_most(name(field), "1"));
    return *d;
  }
  std::optional<float> number(std::string_view field, Bounds bounds) {
    const std::optional<double> d = real(field, bounds);
    constexpr double kMax = std::numeric_limits<float>::max();
    return d ? std::optional(static_cast<float>(std::clamp(*d, -kMax, kMax))) : std::nullopt;
  }

  // The field, while all is well; null pointer when it is absent.
  const json::Value* find(std::string_view field) const noexcept {
    const json::Value* v = status_ ? body_.find(field) : nullptr;
    return v && v->is_null() && !path_.empty() ? nullptr : v;
  }
  std::string name(std::string_view field) const { return path_ + std::string(field); }
  std::nullopt_t fail(std::string text) {
    status_ = invalid(std::move(text));
    return std::nullopt;
  }

 private:
  const json::Value& body_;
  std::string path_;
  Status status_;
};

}  // namespace kvasir::sampling::detail
