// ConfigReader: members of config.json as bounded numbers. The file is untrusted: whatever is
// missing, of another type or out of bounds is refused by name. The first refusal is kept and a
// harmless value goes on, so that a family reads like a data sheet; describe_model() asks status()
// once at the end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/model_files.h"

namespace kvasir::model {

inline constexpr std::uint32_t kMaxLayers = 4096;
inline constexpr std::uint32_t kMaxHeads = 4096;
inline constexpr std::uint32_t kMaxHeadDim = 4096;
inline constexpr std::uint32_t kMaxWidth = 1u << 20;  // hidden, intermediate, n_heads · head_dim
inline constexpr std::uint32_t kMaxVocab = 1u << 24;
inline constexpr std::uint32_t kMaxPositions = 1u << 28;
inline constexpr std::uint32_t kMaxExperts = 4096;
inline constexpr std::uint32_t kMaxTokenTypes = 1024;

// Members of one JSON object; a null member counts as absent.
class ConfigObject {
 public:
  ConfigObject(const json::Value& object, std::string place, Status& status)
      : object_(object), place_(std::move(place)), status_(status) {}
  // The same members, and those of `defaults` where it has none.
  ConfigObject(const ConfigObject& given, const json::Value& defaults) : ConfigObject(given) {
    defaults_ = &defaults;
  }

  const json::Value* find(std::string_view name) const noexcept;
  bool has(std::string_view name) const noexcept { return find(name) != nullptr; }
  bool says_null(std::string_view name) const noexcept;                 // stated, and null
  std::uint32_t count(std::string_view name, std::uint32_t max) const;  // required, 1..max
  std::uint32_t count_or(std::string_view name,
                         std::uint32_t other,
                         std::uint32_t max) const;  // 0..max
  double number(std::string_view name, double min, double max) const;
  double number_or(std::string_view name, double other, double min, double max) const;
  bool flag_or(std::string_view name, bool other) const;
  std::string text_or(std::string_view name, std::string_view other) const;
  std::vector<double> numbers(std::string_view name,
                              std::size_t n,
                              double min,
                              double max) const;     // n of them
  ConfigObject object(std::string_view name) const;  // empty when absent
  std::vector<std::string> names() const;            // of the members that are not null

  void refuse(std::string_view name, std::string_view why) const;
  void refuse(Error error) const;
  const Status& status() const noexcept { return status_; }

 private:
  const json::Value& object_;
  const json::Value* defaults_ = nullptr;
  std::string place_;
  Status& status_;
};

class ConfigReader : public ConfigObject {
 public:
  // served_context: 0 = as many positions as the model has.
  ConfigReader(const formats::ModelFiles& files, std::uint32_t served_context);
  // A family's values for what config.json leaves out; refusals go to `given`. Both must outlive
  // it.
  ConfigReader(const ConfigReader& given, const json::Value& defaults);
  ConfigReader(const ConfigReader&) = delete;

  const formats::ModelFiles& files() const noexcept { return files_; }
  std::uint32_t served_context() const noexcept { return served_context_; }

 private:
  const formats::ModelFiles& files_;
  std::uint32_t served_context_;
  Status own_status_;
};

}  // namespace kvasir::model
