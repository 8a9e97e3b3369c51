// Weight formats: how rows of a weight matrix are stored. A codec is one header here and one line
// in list.h; this door says what a codec offers. A quantized codec splits a block into integer
// codes and, per group of kGroup elements, an f32 scale and bias: value = fma(code, scale, bias)
// (no bias: code * scale). That split is all a backend needs.
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kvasir::codec {

enum class ScaleType : std::uint8_t {
  f32,
  f16,
  bf16
};  // stored type of separate scale and bias planes

// What lies in the scales plane of a type: nothing (block formats), row by row floats of a
// ScaleType or bytes of E8M0 or E4M3, or such floats column by column (columns4.h).
enum class ScalePlane : std::uint8_t { none, floats, e8m0, e4m3, columns };

// Facts of planes that lie column by column, where rows are no runs of bytes.
struct ColumnLayout {
  std::uint32_t n_out = 0;        // of the stored matrix
  std::uint32_t group = 0;        // elements of a row that share a scale and a zero
  std::uint32_t zero_offset = 0;  // added to every stored zero, modulo 16
};

// One row of a weight matrix. Block formats use `codes` alone; planar ones (MLX's, F8) have scales
// and biases apart.
struct RowPlanes {
  const std::byte* codes = nullptr;
  const std::byte* scales = nullptr;
  const std::byte* biases = nullptr;
  ScaleType scale_type = ScaleType::f32;  // of scales and biases, where ScalePlane is floats
  float factor = 1.0f;                    // of the whole matrix, on every E4M3 scale (nvfp4)
  std::uint32_t row = 0;                  // in the stored matrix; columns only
  const ColumnLayout* columns = nullptr;  // owned by who opened the file
};

// kName   the name people know ("q4_1", "affine4g64")
// kBlock  elements of one block; rows are whole blocks
// kBlockBytes  bytes of one block in `codes`
// kGgufType    ggml type number, -1 when GGUF has none
template <class C>
concept WeightCodec = requires {
  { C::kName } -> std::convertible_to<std::string_view>;
  { C::kBlock } -> std::convertible_to<std::size_t>;
  { C::kBlockBytes } -> std::convertible_to<std::size_t>;
  { C::kGgufType } -> std::convertible_to<int>;
  { C::kQuantized } -> std::convertible_to<bool>;
};

// F32, F16, BF16: `decode` gives kBlock (= 1) values exactly.
template <class C>
concept DenseCodec =
    WeightCodec<C> && !C::kQuantized && requires(const std::byte* block, float* out) {
  { C::decode(block, out) }
  noexcept;
};

// Small floats that scale planes go with (kScalePlane, kGroup), F8: backends see floats.
// decode_row: the first n values of a row, n a multiple of kBlock.
template <class C>
concept RowCodec =
    WeightCodec<C> && !C::kQuantized && requires(const RowPlanes& row, std::size_t n, float* out) {
  { C::kGroup } -> std::convertible_to<std::size_t>;
  { C::kScalePlane } -> std::convertible_to<ScalePlane>;
  { C::decode_row(row, n, out) }
  noexcept;
};

// kGroup  elements sharing a scale (16, 32, 64 or 128; divides kBlock)
// kBits   bits that hold a code (2..8);  kSigned: codes are two's complement, and kHasBias is false
// unpack  block b of a row → codes[kBlock], scales[kBlock/kGroup], biases[kBlock/kGroup] (biases
// untouched if !kHasBias)
template <class C>
concept QuantizedCodec = WeightCodec<C> && C::kQuantized && requires(
    const RowPlanes& row, std::size_t b, std::int16_t* codes, float* scales, float* biases) {
  { C::kGroup } -> std::convertible_to<std::size_t>;
  { C::kBits } -> std::convertible_to<int>;
  { C::kSigned } -> std::convertible_to<bool>;
  { C::kHasBias } -> std::convertible_to<bool>;
  { C::unpack(row, b, codes, scales, biases) }
  noexcept;
};

// The value of one code; the definition every backend's decoding is tested against.
inline float dequantize(std::int16_t code, float scale, float bias) noexcept {
  return std::fma(static_cast<float>(code), scale, bias);
}

}  // namespace kvasir::codec
