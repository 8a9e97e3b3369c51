#include "formats/detail/hub_quantization.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace kvasir::formats {
namespace {

constexpr std::array kMethods{
    std::pair{std::string_view("mlx"), HubMethod::mlx},
    std::pair{std::string_view("affine"), HubMethod::mlx},
    std::pair{std::string_view("mxfp4"), HubMethod::mxfp4},
    std::pair{std::string_view("fp8"), HubMethod::fp8},
    std::pair{std::string_view("gptq"), HubMethod::gptq},
    std::pair{std::string_view("awq"), HubMethod::awq},
};

Status check_fp8(const json::Value& settings) {
  const std::string format = settings.string_or("fmt", "e4m3");
  if (format != "e4m3") return unsupported("fp8 weights of format '" + format + "'");
  const json::Value* size = settings.find("weight_block_size");
  const json::Array* sides = size ? size->as_array() : nullptr;
  const bool is_128 = sides && sides->size() == 2 &&
                      std::all_of(sides->begin(), sides->end(), [](const json::Value& side) {
                        return side.as_int() && *side.as_int() == 128;
                      });
  if (is_128) return {};
  return unsupported("fp8 weights with weight_block_size " +
                     (size ? json::write(*size) : std::string("missing")) +
                     "; supported: [128,128]");
}

// Bits and group size under any of two names each.
Status read_integers(const json::Value& settings, const std::string& method, HubQuantization& out) {
  const std::int64_t bits = settings.int_or("bits", settings.int_or("w_bit", 0));
  const std::int64_t group = settings.int_or("group_size", settings.int_or("q_group_size", 0));
  if (bits != 4)
    return unsupported(method + " weights of " + std::to_string(bits) + " bits; supported: 4");
  if (group != -1 && (group < 32 || group % 32 != 0 || group > (1 << 30)))
    return unsupported(method + " weights in groups of " + std::to_string(group));
  out.group = group == -1 ? 0 : static_cast<std::uint64_t>(group);
  return {};
}

Status read_gptq(const json::Value& settings, HubQuantization& out) {
  KVASIR_TRY_DO(read_integers(settings, "gptq", out));
  const std::string format = settings.string_or("checkpoint_format", "gptq");
  if (format != "gptq" && format != "gptq_v2")
    return unsupported("gptq weights of checkpoint_format '" + format +
                       "'; supported: gptq, gptq_v2");
  if (settings.bool_or("is_marlin_format", false))
    return unsupported("gptq weights in marlin form");
  const json::Value* dynamic = settings.find("dynamic");
  if (dynamic && dynamic->as_object() && !dynamic->as_object()->empty())
    return unsupported("gptq weights with settings of their own by module ('dynamic')");
  out.zero_offset = format == "gptq" ? 1 : 0;
  return {};
}

Status read_awq(const json::Value& settings, HubQuantization& out) {
  KVASIR_TRY_DO(read_integers(settings, "awq", out));
  std::string version = settings.string_or("version", "gemm");
  std::transform(version.begin(), version.end(), version.begin(),
                 [](char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c); });
  if (version != "gemm")
    return unsupported("awq weights of version '" + version + "'; supported: gemm");
  if (!settings.bool_or("zero_point", true)) return unsupported("awq weights without zero points");
  return {};
}

}  // namespace

Result<HubQuantization> HubQuantization::read(const json::Value& config) {
  HubQuantization out;
  const json::Value* found = config.find("quantization");
  if (!found || found->is_null()) found = config.find("quantization_config");
  if (!found || found->is_null()) return out;
  if (!found->is_object()) return invalid("config.json: quantization is not an object");
  const std::string name = found->string_or("quant_method", "mlx");
  const auto* const method = std::find_if(kMethods.begin(), kMethods.end(),
                                          [&](const auto& known) { return known.first == name; });
  if (method == kMethods.end()) {
    return unsupported("quantization method '" + name +
                       "' is not supported; supported: MLX's, mxfp4, fp8, gptq, awq");
  }
  out.method = method->second;
  switch (out.method) {
    case HubMethod::mlx: {
      KVASIR_TRY(out.mlx, MlxQuantization::read(*found));
      return out;
    }
    case HubMethod::mxfp4:
      return out;
    case HubMethod::fp8:
      KVASIR_TRY_DO(check_fp8(*found));
      return out;
    case HubMethod::gptq:
      KVASIR_TRY_DO(read_gptq(*found, out));
      return out;
    case HubMethod::awq:
      KVASIR_TRY_DO(read_awq(*found, out));
      return out;
  }
  return out;
}

}  // namespace kvasir::formats
