#include "text/tokenizer/protobuf.h"

namespace kvasir::text::tok {

std::optional<std::uint64_t> ProtoReader::varint() {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest_[0]);
    rest_.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> ProtoReader::fixed(std::size_t n_bytes) {
  if (rest_.size() < n_bytes) return std::nullopt;
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < n_bytes; ++i)
    value |= std::uint64_t{static_cast<unsigned char>(rest_[i])} << (8 * i);
  rest_.remove_prefix(n_bytes);
  return value;
}

std::optional<ProtoReader::Field> ProtoReader::next() {
  if (rest_.empty() || is_damaged_) return std::nullopt;
  is_damaged_ = true;
  const auto tag = varint();
  if (!tag) return std::nullopt;
  Field field;
  field.number = *tag >> 3;
  const std::uint64_t wire_type = *tag & 7;
  std::optional<std::uint64_t> value;
  if (wire_type == 0 || wire_type == 2) value = varint();
  if (wire_type == 1) value = fixed(8);
  if (wire_type == 5) value = fixed(4);
  if (!value) return std::nullopt;
  field.value = *value;
  if (wire_type == 2) {
    if (*value > rest_.size()) return std::nullopt;
    field.is_bytes = true;
    field.bytes = rest_.substr(0, static_cast<std::size_t>(*value));
    rest_.remove_prefix(field.bytes.size());
  }
  is_damaged_ = false;
  return field;
}

}  // namespace kvasir::text::tok
