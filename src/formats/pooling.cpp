#include "formats/pooling.h"

#include <string>
#include <string_view>

#include "base/file.h"

namespace kvasir::formats {
namespace {

constexpr std::uint64_t kMaxConfigBytes = 1 << 20;
constexpr std::string_view kModePrefix = "pooling_mode_";

struct Mode {
  std::string_view name;  // after "pooling_mode_"; also the value of the newer "pooling_mode"
  Pooling pooling;
};
constexpr Mode kModes[] = {{"cls_token", Pooling::cls},
                           {"cls", Pooling::cls},
                           {"mean_tokens", Pooling::mean},
                           {"mean", Pooling::mean},
                           {"lasttoken", Pooling::last}};

Result<Pooling> pooling_of(const std::string& place, std::string_view name) {
  for (const Mode& mode : kModes) {
    if (mode.name == name) return mode.pooling;
  }
  return unsupported(place + ": pooling '" + std::string(name) +
                     "' is not supported; supported: cls, mean, lasttoken");
}

// {"pooling_mode_mean_tokens": true, …}, or {"pooling_mode": "mean"}.
Result<std::optional<Pooling>> read_modes(const std::string& place, const json::Value& config) {
  const json::Object* members = config.as_object();
  if (!members) return invalid(place + ": is not a JSON object");
  std::optional<Pooling> out;
  const auto take = [&](std::string_view name) -> Status {
    KVASIR_TRY(const Pooling pooling, pooling_of(place, name));
    if (out && *out != pooling) return unsupported(place + ": several poolings at once");
    out = pooling;
    return {};
  };
  for (const auto& [key, value] : *members) {
    const std::string_view name = key;
    if (name == "pooling_mode" && value.as_string()) KVASIR_TRY_DO(take(*value.as_string()));
    const bool* is_on = value.as_bool();
    if (name.starts_with(kModePrefix) && is_on && *is_on)
      KVASIR_TRY_DO(take(name.substr(kModePrefix.size())));
  }
  return out;
}

// llama.cpp's numbers: 0 none, 1 mean, 2 cls, 3 last, 4 rank.
Result<std::optional<Pooling>> read_metadata(const ModelFiles& files) {
  const json::Value* architecture = files.metadata().find("general.architecture");
  const std::string* name = architecture ? architecture->as_string() : nullptr;
  const json::Value* type = name ? files.metadata().find(*name + ".pooling_type") : nullptr;
  const auto number = type ? type->as_number() : std::nullopt;
  if (!number || *number == 0.0) return std::optional<Pooling>();
  if (*number == 1.0) return std::optional(Pooling::mean);
  if (*number == 2.0) return std::optional(Pooling::cls);
  if (*number == 3.0) return std::optional(Pooling::last);
  return unsupported(files.path().string() + ": pooling_type must be 1 to 3");
}

}  // namespace

Result<std::optional<Pooling>> find_pooling(const ModelFiles& files) {
  if (files.container() == Container::gguf) return read_metadata(files);
  const std::filesystem::path file = files.path() / "1_Pooling" / "config.json";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return std::optional<Pooling>();
  KVASIR_TRY(const std::string text, read_file(file, kMaxConfigBytes));
  Result<json::Value> config = json::parse(text);
  if (!config) return invalid(file.string() + ": " + config.error().what);
  return read_modes(file.string(), *config);
}

}  // namespace kvasir::formats
