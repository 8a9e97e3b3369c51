// The first line is a quantization setting of config.json, the rest a safetensors file: what is
// folded into weights can be decoded.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "formats/detail/fuzz_decode.h"
#include "formats/detail/hub_entries.h"
#include "formats/detail/hub_folds.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvasir;
  using namespace kvasir::formats;
  const std::span bytes = std::as_bytes(std::span(data, size));
  const auto line = static_cast<std::size_t>(std::find(data, data + size, '\n') - data);
  if (line == size) return 0;
  const auto settings =
      json::parse({reinterpret_cast<const char*>(data), line}, {std::uint64_t{1} << 20, 16});
  const auto content = parse_safetensors(bytes.subspan(line + 1));
  if (!settings || !content) return 0;
  const auto quantization = HubQuantization::read(json::Object{{"quantization", *settings}});
  if (!quantization) return 0;
  TensorList tensors;
  for (const SafeTensor& tensor : content->tensors) tensors.push_back(&tensor);
  const auto entries = fold_entries(tensors, *quantization);
  if (!entries) return 0;
  std::size_t n_rows = 0;
  for (const StoredTensor& entry : *entries)
    n_rows += has_plain_order(entry) ? decode_ends(entry) : 0;
  return n_rows == ~std::size_t{0} ? -1 : 0;
}
