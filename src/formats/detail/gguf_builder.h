// Writes small GGUF files for tests, right ones and wrong ones.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/detail/test_files.h"
#include "formats/gguf.h"

namespace kvasir::formats {

class GgufBuilder {
 public:
  static constexpr std::size_t kAlignment = 32;

  // A value by its kind and bytes, whether they fit each other or not.
  GgufBuilder& raw(std::string_view key, GgufKind kind, std::string_view bytes) {
    entries_ +=
        text_bytes(key) + bytes_of_values<std::uint32_t>({static_cast<std::uint32_t>(kind)});
    entries_ += bytes;
    ++n_entries_;
    return *this;
  }
  GgufBuilder& text(std::string_view key, std::string_view value) {
    return raw(key, GgufKind::string, text_bytes(value));
  }
  template <class T>
  GgufBuilder& number(std::string_view key, GgufKind kind, T value) {
    return raw(key, kind, bytes_of_values<T>({value}));
  }
  template <class T>
  GgufBuilder& numbers(std::string_view key, GgufKind element, const std::vector<T>& values) {
    return raw(key, GgufKind::array, array_head(element, values.size()) + bytes_of_values(values));
  }
  GgufBuilder& texts(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes = array_head(GgufKind::string, values.size());
    for (const std::string& value : values) bytes += text_bytes(value);
    return raw(key, GgufKind::array, bytes);
  }

  // dims: innermost first, as in the file.
  GgufBuilder& tensor(std::string_view name,
                      std::uint32_t type,
                      const std::vector<std::uint64_t>& dims,
                      std::string_view bytes) {
    data_.resize((data_.size() + kAlignment - 1) / kAlignment * kAlignment, '\0');
    tensor_at(name, type, dims, data_.size());
    data_ += bytes;
    return *this;
  }
  GgufBuilder& tensor_at(std::string_view name,
                         std::uint32_t type,
                         const std::vector<std::uint64_t>& dims,
                         std::uint64_t offset) {
    tensors_ += text_bytes(name) +
                bytes_of_values<std::uint32_t>({static_cast<std::uint32_t>(dims.size())});
    tensors_ += bytes_of_values(dims) + bytes_of_values<std::uint32_t>({type}) +
                bytes_of_values<std::uint64_t>({offset});
    ++n_tensors_;
    return *this;
  }
  GgufBuilder& data(std::string_view bytes) {
    data_ += bytes;
    return *this;
  }

  std::string bytes() const { return bytes(n_tensors_, n_entries_); }
  std::string bytes(std::uint64_t n_tensors, std::uint64_t n_entries) const {
    std::string out = "GGUF" + bytes_of_values<std::uint32_t>({3}) +
                      bytes_of_values<std::uint64_t>({n_tensors, n_entries});
    out += entries_ + tensors_;
    if (n_tensors_ > 0) out.resize((out.size() + kAlignment - 1) / kAlignment * kAlignment, '\0');
    return out + data_;
  }

 private:
  static std::string text_bytes(std::string_view text) {
    return bytes_of_values<std::uint64_t>({text.size()}).append(text);
  }
  static std::string array_head(GgufKind element, std::size_t n) {
    return bytes_of_values<std::uint32_t>({static_cast<std::uint32_t>(element)}) +
           bytes_of_values<std::uint64_t>({n});
  }

  std::string entries_, tensors_, data_;
  std::uint64_t n_entries_ = 0, n_tensors_ = 0;
};

}  // namespace kvasir::formats
