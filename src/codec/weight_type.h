// WeightType: a codec of list.h as a run-time value, with its facts and row decoding. The bridge
// between files (which find a type by name or number) and backends (which repack by the type's
// codes, scales and biases).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "codec/weight_codec.h"

namespace kvasir::codec {

struct WeightType {
  std::uint8_t index = 0;  // in WeightCodecs (list.h)
  friend constexpr bool operator==(WeightType, WeightType) = default;
};

struct WeightTypeInfo {
  std::string_view name;
  std::size_t block = 1;        // elements
  std::size_t block_bytes = 4;  // of the codes plane
  int gguf_type = -1;
  bool quantized = false;
  std::size_t group = 0;  // elements of a row that share a scale; 0: no scales
  int bits = 0;           // of a code; 0 when not quantized
  bool is_signed = false;
  bool has_bias = false;
  ScalePlane scale_plane = ScalePlane::none;
};

const WeightTypeInfo& info(WeightType type) noexcept;
std::optional<WeightType> find_weight_type(std::string_view name) noexcept;
std::optional<WeightType> find_gguf_type(std::uint32_t ggml_type) noexcept;

// First n values of the row (n: a multiple of the block) as f32. The oracle's view of any weight.
void decode_row(WeightType type, const RowPlanes& row, std::size_t n, float* out) noexcept;
// Quantized types only: codes[n], scales[n/group], biases[n/group] (zeros when the type has none).
void unpack_row(WeightType type,
                const RowPlanes& row,
                std::size_t n,
                std::int16_t* codes,
                float* scales,
                float* biases) noexcept;

}  // namespace kvasir::codec
