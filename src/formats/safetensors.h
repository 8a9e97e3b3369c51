// Safetensors files: named tensors of any dtype, validated before any byte of data is looked at.
// ModelFiles reads weights through this; tools read goldens and other tensor files. Immutable after
// opening; safe from any thread. Format: u64 LE header length n, n bytes of JSON, then the data,
// starting exactly at 8 + n however unaligned that is: never cast `bytes` to a wider type, copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace kvasir::formats {

struct SafeTensor {
  std::string name;
  std::string dtype;                 // as in the file: "F32", "BF16", "I32" …
  std::vector<std::uint64_t> shape;  // outermost first; empty for a scalar
  std::span<const std::byte> bytes;  // little-endian, row-major, maybe unaligned
};

struct SafetensorsContent {
  std::vector<SafeTensor> tensors;  // in the order of their data
  std::vector<std::pair<std::string, std::string>> metadata;
};

// The whole file in memory → its tensors, which point into `file`. Refused: a header over 100 MiB
// or beyond the file, a name twice, offsets that are reversed, overlap, leave the file or disagree
// with shape × dtype.
Result<SafetensorsContent> parse_safetensors(std::span<const std::byte> file);

class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(
      const std::filesystem::path& path);  // mapped; errors begin with the path
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
  ~SafetensorsFile();

  const std::vector<SafeTensor>& tensors() const noexcept;
  const std::vector<std::pair<std::string, std::string>>& metadata() const noexcept;
  const SafeTensor* find(std::string_view name) const noexcept;  // null when absent

 private:
  struct Impl;
  explicit SafetensorsFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvasir::formats
