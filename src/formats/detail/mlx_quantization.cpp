#include "formats/detail/mlx_quantization.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "formats/detail/hub_folds.h"
#include "formats/detail/hub_names.h"

namespace kvasir::formats {
namespace {

// Modes with one size only.
const std::array<MlxMode, 3> kFloatModes{MlxMode{"mxfp4", 4, 32}, MlxMode{"mxfp8", 8, 32},
                                         MlxMode{"nvfp4", 4, 16}};

const MlxMode kAffineDefault{"affine", 4, 64};

const MlxMode* find_float_mode(std::string_view name) noexcept {
  for (const MlxMode& mode : kFloatModes) {
    if (mode.mode == name) return &mode;
  }
  return nullptr;
}

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
  mode.mode = value.string_or("mode", "affine");  // also of an override when the default is another
  const MlxMode* const floats = find_float_mode(mode.mode);
  const MlxMode& rest = floats ? *floats : defaults.mode == "affine" ? defaults : kAffineDefault;
  mode.bits = value.int_or("bits", rest.bits);
  mode.group = value.int_or("group_size", rest.group);
  if (mode.bits < 1 || mode.bits > 8 || mode.group < 1 || mode.group > 4096) {
    return invalid("quantization of '" + where + "': bits " + std::to_string(mode.bits) +
                   ", group_size " + std::to_string(mode.group));
  }
  if (floats && floats->bits != mode.bits) {
    return invalid("quantization of '" + where + "': mode " + mode.mode + " with " +
                   std::to_string(mode.bits) + " bits");
  }
  return std::optional<MlxMode>(mode);
}

bool same_but_last(const std::vector<std::uint64_t>& a, const std::vector<std::uint64_t>& b) {
  return a.size() == b.size() && a.size() >= 2 && std::equal(a.begin(), a.end() - 1, b.begin());
}

}  // namespace

std::string MlxMode::type_name() const {
  return (mode == "affine" ? mode + std::to_string(bits) : mode) + "g" + std::to_string(group);
}

Result<MlxQuantization> MlxQuantization::read(const json::Value& settings) {
  MlxQuantization out;
  KVASIR_TRY(out.default_, read_mode("default", settings, {"affine", 0, 64}));
  for (const auto& [key, value] : *settings.as_object()) {
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

namespace {

// Scales and biases as floats of one dtype.
Status fold_affine(const std::string& at, const MlxPlanes& from, StoredTensor& out) {
  const SafeTensor *scales = from.scales, *biases = from.biases;
  if (!biases) return invalid(at + "there are scales but no biases");
  if (from.global_scale) return invalid(at + "there is a global_scale");
  const auto planes = scale_type_of(scales->dtype);
  if (!planes || biases->dtype != scales->dtype) {
    return invalid(at + "scales and biases have dtypes " + scales->dtype + " and " + biases->dtype);
  }
  if (scales->shape != biases->shape)
    return invalid(at + "codes, scales and biases disagree in shape");
  out.planes.biases = biases->bytes.data();
  out.planes.scale_type = *planes;
  out.scales_stride = scales->shape.back() * (planes == codec::ScaleType::f32 ? 4 : 2);
  return {};
}

// Scales as bytes, and nvfp4's factor.
Status fold_floats(const std::string& at, const MlxPlanes& from, StoredTensor& out) {
  if (from.biases) return invalid(at + "there are biases");
  if (from.scales->dtype != "U8")
    return invalid(at + "scales have dtype " + from.scales->dtype + ", not U8");
  out.scales_stride = from.scales->shape.back();
  const SafeTensor* global = from.global_scale;
  if (!global) return {};
  if (global->dtype != "F32" || global->bytes.size() != 4 ||
      codec::info(*out.type).scale_plane != codec::ScalePlane::e4m3) {
    return invalid(at + "its global_scale is not one F32 of an nvfp4 module");
  }
  std::memcpy(&out.planes.factor, global->bytes.data(), 4);
  out.planes.factor /= 448.0f * 6.0f;
  return {};
}

}  // namespace

Result<StoredTensor> fold_planes(const MlxMode& mode, const MlxPlanes& from) {
  const SafeTensor& weight = *from.weight;
  StoredTensor out;
  out.info.stored_name = weight.name;
  out.info.type = mode.type_name();
  out.info.shape = weight.shape;
  for (const SafeTensor* plane : {from.weight, from.scales, from.biases, from.global_scale})
    out.info.size_bytes += plane ? plane->bytes.size() : 0;
  const std::string at = "module '" + weight.name + "' (" + out.info.type + "): ";
  if (!from.scales) return invalid(at + "it is said to be quantized but has no scales");
  const auto type = codec::find_weight_type(out.info.type);
  const bool is_affine = mode.mode == "affine";
  if (!type || !(is_affine || find_float_mode(mode.mode))) {
    out.refusal =
        "has type " + out.info.type + ", not supported yet; supported: " + supported_types();
    return out;
  }
  if (weight.dtype != "U32") return invalid(at + "codes have dtype " + weight.dtype + ", not U32");
  if (!same_but_last(weight.shape, from.scales->shape) || weight.bytes.empty())
    return invalid(at + "codes and scales disagree in shape");
  const auto bits = static_cast<std::uint64_t>(mode.bits),
             group = static_cast<std::uint64_t>(mode.group);
  // Row lengths cannot overflow: they are bounded by the bytes of a mapped file, times 32.
  const std::uint64_t row_bits = weight.shape.back() * 32, n_in = row_bits / bits;
  if (row_bits % bits != 0 || n_in % group != 0 || from.scales->shape.back() != n_in / group) {
    return invalid(at + std::to_string(n_in) + " codes a row and " +
                   std::to_string(from.scales->shape.back()) + " scales");
  }
  out.info.shape.back() = n_in;
  set_planes(out, *type, weight.bytes.data());
  out.planes.scales = from.scales->bytes.data();
  KVASIR_TRY_DO(is_affine ? fold_affine(at, from, out) : fold_floats(at, from, out));
  return out;
}

}  // namespace kvasir::formats
