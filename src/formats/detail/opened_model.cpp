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

std::string supported_types() {
  std::string out;
  codec::WeightCodecs::for_each(
      [&]<class C>() { out.append(out.empty() ? "" : ", ").append(C::kName); });
  return out;
}

}  // namespace kvasir::formats
