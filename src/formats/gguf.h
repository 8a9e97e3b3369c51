// GGUF v2 and v3 files: metadata by key and tensors, validated before any of it is believed.
// ModelFiles reads weights through this; gguf_vocab.h the tokenizer. Every length is checked
// against the bytes that are left, so a small file cannot cause a big allocation. Views point into
// the given bytes; immutable; safe from any thread. Format: github.com/ggml-org/ggml, docs/gguf.md
// (little-endian; dimensions innermost first, here turned round).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "json/json.h"

namespace kvasir::formats {

enum class GgufKind : std::uint8_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64
};

// A value of the metadata. Arrays stay where they are in the file and are read on demand: a
// vocabulary costs nothing.
struct GgufValue {
  GgufKind kind = GgufKind::u8;
  GgufKind element = GgufKind::u8;   // of an array; never itself an array
  std::uint64_t n = 0;               // elements of an array
  std::span<const std::byte> bytes;  // the value; of a string without its length

  bool is_array() const noexcept { return kind == GgufKind::array; }
  // A number as a double, a boolean as 0 or 1; nothing for strings and arrays.
  std::optional<double> number() const noexcept;
  std::optional<std::uint64_t> whole() const noexcept;  // a number that is an integer in [0, 2^53]
  std::optional<std::string_view> text() const noexcept;
  json::Value to_json() const;
  // An array's elements: strings as views, numbers as f64. Empty when the elements are of the other
  // sort.
  std::vector<std::string_view> strings() const;
  std::vector<double> numbers() const;
};

struct GgufTensor {
  std::string name;
  std::uint32_t type = 0;            // ggml type number
  std::string_view type_name;        // "q4_1", "iq4_xs" …
  std::vector<std::uint64_t> shape;  // outermost first, 1 to 4 dimensions, none zero
  std::span<const std::byte> bytes;
};

struct GgufContent {
  std::uint32_t version = 0;
  std::vector<std::pair<std::string, GgufValue>> metadata;  // in file order
  std::vector<GgufTensor> tensors;
  std::unordered_map<std::string, std::size_t> by_key;  // into metadata

  const GgufValue* find(std::string_view key) const;  // null when absent
  double number_or(std::string_view key, double other) const;
  std::uint64_t whole_or(std::string_view key, std::uint64_t other) const;
  std::string_view text_or(std::string_view key, std::string_view other) const;
};

// The whole file in memory → its content. Errors name the key or the tensor.
Result<GgufContent> parse_gguf(std::span<const std::byte> file);

}  // namespace kvasir::formats
