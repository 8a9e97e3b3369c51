#include "formats/detail/opened_model.h"

#include "codec/list.h"

namespace kvasir::formats {

void set_planes(StoredTensor& tensor, codec::WeightType type, const std::byte* bytes) {
  const codec::WeightTypeInfo& facts = codec::info(type);
  const std::uint64_t n_in = tensor.info.shape.empty() ? 1 : tensor.info.shape.back();
  tensor.type = type;
  tensor.info.type = facts.name;
  tensor.planes.codes = bytes;
  tensor.codes_stride = n_in / facts.block * facts.block_bytes;
}

codec::WeightMatrix view_of(const StoredTensor& tensor,
                            std::size_t first_row,
                            std::uint32_t n_out,
                            std::uint32_t n_in) noexcept {
  codec::WeightMatrix out{*tensor.type,        n_out, n_in, tensor.planes, tensor.codes_stride,
                          tensor.scales_stride};
  out.rows_per_scale = tensor.rows_per_scale;
  return out.rows(static_cast<std::uint32_t>(first_row), n_out);
}

std::string supported_types() {
  std::string out;
  codec::WeightCodecs::for_each(
      [&]<class C>() { out.append(out.empty() ? "" : ", ").append(C::kName); });
  return out;
}

}  // namespace kvasir::formats
