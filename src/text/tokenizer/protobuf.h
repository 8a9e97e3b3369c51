// A reader of protocol buffer wire format (https://protobuf.dev/programming-guides/encoding), for
// tokenizer.model.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kvasir::text::tok {

class ProtoReader {
 public:
  explicit ProtoReader(std::string_view bytes) : rest_(bytes) {}

  struct Field {
    std::uint64_t number = 0;
    std::uint64_t value = 0;  // varint and fixed wire types
    std::string_view bytes;   // length-delimited wire type
    bool is_bytes = false;
  };
  // The next field; nullopt at the end, or where the bytes are damaged (then is_damaged()).
  std::optional<Field> next();
  bool is_damaged() const noexcept { return is_damaged_; }

 private:
  std::optional<std::uint64_t> varint();
  std::optional<std::uint64_t> fixed(std::size_t n_bytes);
  std::string_view rest_;
  bool is_damaged_ = false;
};

}  // namespace kvasir::text::tok
