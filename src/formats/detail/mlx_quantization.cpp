#include "formats/detail/mlx_quantization.h"

#include "formats/detail/hub_names.h"

namespace kvasir::formats {
namespace {

Result<std::optional<MlxMode>> read_mode(const std::string& where,
                                         const json::Value& value,
                                         const MlxMode& defaults) {
  if (value.as_bool()) {
    if (!*value.as_bool()) return std::optional<MlxMode>();
    return std::optional<MlxMode>(defaults);
  }
  if (!value.is_object())
    return invalid("quantization of '" + where + "' is neither an object nor a boolean");
  MlxMode mode;
  mode.mode = value.string_or("mode", defaults.mode);
  mode.bits = value.int_or("bits", defaults.bits);
  mode.group = value.int_or("group_size", defaults.group);
  if (mode.bits < 1 || mode.bits > 8 || mode.group < 1 || mode.group > 4096) {
    return invalid("quantization of '" + where + "': bits " + std::to_string(mode.bits) +
                   ", group_size " + std::to_string(mode.group));
  }
  return std::optional<MlxMode>(mode);
}

std::optional<codec::ScaleType> scale_type(std::string_view dtype) {
  if (dtype == "F32") return codec::ScaleType::f32;
  if (dtype == "F16") return codec::ScaleType::f16;
  if (dtype == "BF16") return codec::ScaleType::bf16;
  return std::nullopt;
}

bool same_but_last(const std::vector<std::uint64_t>& a, const std::vector<std::uint64_t>& b) {
  return a.size() == b.size() && a.size() >= 2 && std::equal(a.begin(), a.end() - 1, b.begin());
}

}  // namespace

std::string MlxMode::type_name() const {
  if (mode != "affine") return mode;
  return "affine" + std::to_string(bits) + "g" + std::to_string(group);
}

Result<MlxQuantization> MlxQuantization::read(const json::Value& config) {
  MlxQuantization out;
  const json::Value* found = config.find("quantization");
  if (!found || found->is_null()) found = config.find("quantization_config");
  if (!found || found->is_null()) return out;
  if (!found->is_object()) return invalid("config.json: quantization is not an object");
  const std::string method = found->string_or("quant_method", "mlx");
  if (method != "mlx" && method != "affine") {
    return unsupported("quantization method '" + method +
                       "' is not supported yet; supported: MLX affine");
  }
  KVASIR_TRY(out.default_, read_mode("default", *found, {"affine", 0, 64}));
  for (const auto& [key, value] : *found->as_object()) {
    const bool is_setting =
        key == "group_size" || key == "bits" || key == "mode" || key == "quant_method";
    if (is_setting || !(value.is_object() || value.is_bool())) continue;
    KVASIR_TRY(auto mode, read_mode(key, value, *out.default_));
    out.overrides_[canonical_name(key)] = mode;
  }
  return out;
}

std::optional<MlxMode> MlxQuantization::mode_of(std::string_view canonical_module,
                                                bool has_scales) const {
  if (const auto it = overrides_.find(std::string(canonical_module)); it != overrides_.end())
    return it->second;
  return has_scales ? default_ : std::nullopt;
}

Result<StoredTensor> fold_planes(const MlxMode& mode,
                                 const SafeTensor& weight,
                                 const SafeTensor& scales,
                                 const SafeTensor* biases) {
  StoredTensor out;
  out.info.stored_name = weight.name;
  out.info.type = mode.type_name();
  out.info.size_bytes =
      weight.bytes.size() + scales.bytes.size() + (biases ? biases->bytes.size() : 0);
  out.info.shape = weight.shape;
  const auto type = codec::find_weight_type(out.info.type);
  if (mode.mode != "affine" || !type) {
    out.refusal =
        "has type " + out.info.type + ", not supported yet; supported: " + supported_types();
    return out;
  }
  const std::string at = "module '" + weight.name + "' (" + out.info.type + "): ";
  if (!biases) return invalid(at + "there are scales but no biases");
  if (weight.dtype != "U32") return invalid(at + "codes have dtype " + weight.dtype + ", not U32");
  const auto planes = scale_type(scales.dtype);
  if (!planes || biases->dtype != scales.dtype) {
    return invalid(at + "scales and biases have dtypes " + scales.dtype + " and " + biases->dtype);
  }
  const auto bits = static_cast<std::uint64_t>(mode.bits),
             group = static_cast<std::uint64_t>(mode.group);
  if (!same_but_last(weight.shape, scales.shape) || scales.shape != biases->shape) {
    return invalid(at + "codes, scales and biases disagree in shape");
  }
  // Row lengths cannot overflow: they are bounded by the bytes of a mapped file, times 32.
  const std::uint64_t n_in = weight.shape.back() * 32 / bits;
  if (n_in % group != 0 || scales.shape.back() != n_in / group) {
    return invalid(at + std::to_string(n_in) + " codes a row and " +
                   std::to_string(scales.shape.back()) + " scales");
  }
  out.info.shape.back() = n_in;
  set_planes(out, *type, weight.bytes.data());
  out.planes.scales = scales.bytes.data();
  out.planes.biases = biases->bytes.data();
  out.planes.scale_type = *planes;
  out.scales_stride = scales.shape.back() * (planes == codec::ScaleType::f32 ? 4 : 2);
  return out;
}

}  // namespace kvasir::formats
