#include "model/detail/config_reader.h"

#include <cmath>

namespace kvasir::model {
namespace {

const json::Value kEmptyObject = json::Object{};

std::string number_text(double x) {
  return x == std::floor(x) && std::abs(x) < 1e15 ? std::to_string(static_cast<std::int64_t>(x))
                                                  : std::to_string(x);
}

bool in_range(double x, double min, double max) noexcept {
  return x >= min && x <= max;
}  // false for NaN

}  // namespace

const json::Value* ConfigObject::find(std::string_view name) const noexcept {
  const json::Value* value = object_.find(name);
  if (defaults_ && (!value || value->is_null())) value = defaults_->find(name);
  return value && !value->is_null() ? value : nullptr;
}

bool ConfigObject::says_null(std::string_view name) const noexcept {
  const json::Value* value = object_.find(name);
  return value && value->is_null();
}

double ConfigObject::number(std::string_view name, double min, double max) const {
  const json::Value* value = find(name);
  const auto x = value ? value->as_number() : std::nullopt;
  if (x && in_range(*x, min, max)) return *x;
  refuse(name, value ? "must be a number from " + number_text(min) + " to " + number_text(max)
                     : "is missing");
  return min;
}

double ConfigObject::number_or(std::string_view name, double other, double min, double max) const {
  return has(name) ? number(name, min, max) : other;
}

std::uint32_t ConfigObject::count(std::string_view name, std::uint32_t max) const {
  const double x = number(name, 1, max);
  if (x != std::floor(x)) refuse(name, "must be an integer");
  return static_cast<std::uint32_t>(x);
}

std::uint32_t ConfigObject::count_or(std::string_view name,
                                     std::uint32_t other,
                                     std::uint32_t max) const {
  if (!has(name)) return other;
  const double x = number(name, 0, max);
  if (x != std::floor(x)) refuse(name, "must be an integer");
  return static_cast<std::uint32_t>(x);
}

bool ConfigObject::flag_or(std::string_view name, bool other) const {
  const json::Value* value = find(name);
  if (!value) return other;
  if (const bool* flag = value->as_bool()) return *flag;
  refuse(name, "must be true or false");
  return other;
}

std::string ConfigObject::text_or(std::string_view name, std::string_view other) const {
  const json::Value* value = find(name);
  if (!value) return std::string(other);
  if (const std::string* text = value->as_string()) return *text;
  refuse(name, "must be a string");
  return std::string(other);
}

std::vector<double> ConfigObject::numbers(std::string_view name,
                                          std::size_t n,
                                          double min,
                                          double max) const {
  std::vector<double> out(n, min);
  const json::Value* value = find(name);
  const json::Array* array = value ? value->as_array() : nullptr;
  if (!array || array->size() != n) {
    refuse(name, "must be an array of " + std::to_string(n) + " numbers");
    return out;
  }
  for (std::size_t i = 0; i < n; ++i) {
    const auto x = (*array)[i].as_number();
    if (!x || !in_range(*x, min, max)) {
      refuse(name, "must hold numbers from " + number_text(min) + " to " + number_text(max));
      return std::vector<double>(n, min);
    }
    out[i] = *x;
  }
  return out;
}

ConfigObject ConfigObject::object(std::string_view name) const {
  const json::Value* value = find(name);
  if (value && !value->is_object()) refuse(name, "must be an object");
  return {value && value->is_object() ? *value : kEmptyObject, place_ + std::string(name) + ".",
          status_};
}

std::vector<std::string> ConfigObject::names() const {
  std::vector<std::string> out;
  for (const auto& [name, value] : *object_.as_object()) {
    if (!value.is_null()) out.emplace_back(name);
  }
  return out;
}

void ConfigObject::refuse(std::string_view name, std::string_view why) const {
  refuse(invalid("config: '" + place_ + std::string(name) + "' " + std::string(why)));
}

void ConfigObject::refuse(Error error) const {
  if (status_) status_ = std::move(error);
}

ConfigReader::ConfigReader(const formats::ModelFiles& files, std::uint32_t served_context)
    : ConfigObject(files.config(), "", own_status_),
      files_(files),
      served_context_(served_context) {}

ConfigReader::ConfigReader(const ConfigReader& given, const json::Value& defaults)
    : ConfigObject(given, defaults), files_(given.files_), served_context_(given.served_context_) {}

}  // namespace kvasir::model
