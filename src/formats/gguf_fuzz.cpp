// Any bytes as a GGUF file: parsed or refused; an accepted file can be turned into a configuration
// and canonical names, and its tensors of known types decoded.
#include <cstdint>
#include <span>

#include "formats/detail/fuzz_decode.h"
#include "formats/detail/gguf_arch.h"
#include "formats/detail/gguf_config.h"
#include "formats/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvasir;
  using namespace kvasir::formats;
  const auto content = parse_gguf(std::as_bytes(std::span(data, size)));
  if (!content) return 0;
  std::size_t sum = 0;
  for (const auto& [key, value] : content->metadata)
    sum += kvasir::json::write(value.to_json()).size();
  const GgufArch arch = gguf_arch_of(*content);
  const auto config = gguf_config(*content, arch, content->tensors);
  for (const auto& tensor : content->tensors) {
    sum += canonical_gguf_name(arch, tensor.name, 1).size();
    for (const std::byte b : tensor.bytes) sum += std::to_integer<std::size_t>(b);
    const auto type = codec::find_gguf_type(tensor.type);
    if (!type) continue;
    StoredTensor stored;
    stored.info.shape = tensor.shape;
    set_planes(stored, *type, tensor.bytes.data());
    sum += decode_ends(stored);
  }
  return config && sum == ~std::size_t{0} ? -1 : 0;
}
