#include "formats/detail/hub_folds.h"

#include <cstring>
#include <limits>

namespace kvasir::formats {
namespace {

using Shape = std::vector<std::uint64_t>;

// Row by row types keep 32-bit counts; a file that passes them is not a model.
bool fits(std::uint64_t n) noexcept { return n <= std::numeric_limits<std::uint32_t>::max(); }

Error fold_error(const SafeTensor& tensor, const std::string& what) {
  return invalid("module '" + tensor.name + "': " + what);
}

StoredTensor start(const SafeTensor& tensor, std::initializer_list<const SafeTensor*> planes) {
  StoredTensor out;
  out.info.stored_name = tensor.name;
  out.info.size_bytes = tensor.bytes.size();
  for (const SafeTensor* plane : planes) {
    if (plane) out.info.size_bytes += plane->bytes.size();
  }
  return out;
}

std::size_t size_of(codec::ScaleType type) noexcept {
  return type == codec::ScaleType::f32 ? 4 : 2;
}

}  // namespace

std::optional<codec::ScaleType> scale_type_of(std::string_view dtype) noexcept {
  if (dtype == "F32") return codec::ScaleType::f32;
  if (dtype == "F16") return codec::ScaleType::f16;
  if (dtype == "BF16") return codec::ScaleType::bf16;
  return std::nullopt;
}

Result<StoredTensor> fold_f8(const SafeTensor& weight, const SafeTensor& scales) {
  constexpr std::uint64_t kSide = 128;
  const auto type = scale_type_of(scales.dtype);
  if (!type) return fold_error(weight, "scales have dtype " + scales.dtype);
  if (weight.shape.size() != 2) return fold_error(weight, "scaled F8 weights have two dimensions");
  const auto blocks = [](std::uint64_t n) { return n / kSide + (n % kSide != 0 ? 1 : 0); };
  if (scales.shape != Shape{blocks(weight.shape[0]), blocks(weight.shape[1])})
    return fold_error(weight, "its scales are not one for 128 x 128 elements");
  StoredTensor out = start(weight, {&scales});
  out.info.shape = weight.shape;
  set_planes(out, *codec::find_weight_type("f8_e4m3"), weight.bytes.data());
  out.planes.scales = scales.bytes.data();
  out.planes.scale_type = *type;
  out.scales_stride = scales.shape[1] * size_of(*type);
  out.rows_per_scale = kSide;
  return out;
}

Result<StoredTensor> fold_blocks(const SafeTensor& blocks, const SafeTensor& scales) {
  Shape rows = blocks.shape;
  if (rows.size() < 3 || rows.back() != 16 || blocks.bytes.empty())
    return fold_error(blocks, "blocks are not [.., rows, blocks, 16]");
  rows.pop_back();
  if (scales.shape != rows) return fold_error(blocks, "blocks and scales disagree in shape");
  StoredTensor out = start(blocks, {&scales});
  out.info.shape = rows;
  out.info.shape.back() *= 32;  // at most twice the file's bytes
  set_planes(out, *codec::find_weight_type("mxfp4g32"), blocks.bytes.data());
  out.planes.scales = scales.bytes.data();
  out.scales_stride = rows.back();
  return out;
}

Result<StoredTensor> fold_columns(const HubQuantization& how, const ColumnTensors& from) {
  const bool is_awq = how.method == HubMethod::awq;
  const SafeTensor& codes = *from.codes;
  if (!from.zeros || !from.scales) return fold_error(codes, "there are no qzeros or no scales");
  if (codes.dtype != "I32" || from.zeros->dtype != "I32")
    return fold_error(
        codes, "qweight and qzeros have dtypes " + codes.dtype + " and " + from.zeros->dtype);
  const auto scale_type = scale_type_of(from.scales->dtype);
  if (!scale_type) return fold_error(codes, "scales have dtype " + from.scales->dtype);
  if (codes.shape.size() != 2 || codes.bytes.empty())
    return fold_error(codes, "qweight is not a matrix");
  const std::uint64_t n_in = codes.shape[0] * (is_awq ? 1 : 8),
                      n_out = codes.shape[1] * (is_awq ? 8 : 1);
  const std::uint64_t group = how.group == 0 ? n_in : how.group;
  if (!fits(n_in) || !fits(n_out) || n_out % 8 != 0 || n_in % group != 0 ||
      from.scales->shape != Shape{n_in / group, n_out} ||
      from.zeros->shape != Shape{n_in / group, n_out / 8}) {
    return fold_error(codes, "qweight, qzeros and scales disagree in shape for groups of " +
                                 std::to_string(group));
  }
  StoredTensor out = start(codes, {from.zeros, from.scales, from.order});
  out.info.shape = {n_out, n_in};
  if (group % 32 != 0) {
    out.info.type = is_awq ? "awq4" : "gptq4";
    out.refusal = "is in groups of " + std::to_string(group) + ", which has no affine form";
    return out;
  }
  const char* const kept = group % 128 == 0 ? "128" : group % 64 == 0 ? "64" : "32";
  const auto type = codec::find_weight_type(std::string(is_awq ? "awq4g" : "gptq4g") + kept);
  set_planes(out, *type, codes.bytes.data());
  out.codes_stride = 0;
  out.planes.scales = from.scales->bytes.data();
  out.planes.biases = from.zeros->bytes.data();
  out.planes.scale_type = *scale_type;
  out.columns = std::make_unique<codec::ColumnLayout>(codec::ColumnLayout{
      static_cast<std::uint32_t>(n_out), static_cast<std::uint32_t>(group), how.zero_offset});
  out.planes.columns = out.columns.get();
  if (!from.order || from.order->bytes.empty()) return out;
  if (from.order->dtype != "I32" || from.order->shape != Shape{n_in})
    return fold_error(codes, "g_idx is not one I32 for each input");
  out.order = from.order->bytes;
  return out;
}

bool has_plain_order(const StoredTensor& tensor) noexcept {
  for (std::size_t k = 0; k < tensor.order.size() / 4; ++k) {
    std::uint32_t group = 0;
    std::memcpy(&group, tensor.order.data() + 4 * k, 4);
    if (group != k / tensor.columns->group) return false;
  }
  return true;
}

}  // namespace kvasir::formats
