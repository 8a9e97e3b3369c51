// What a KV codec offers (kv_codec.h), and what the codecs share: packed codes, stored scales, the
// range of a group.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include "base/half.h"
#include "codec/detail/block_bytes.h"
#include "codec/kv_codec.h"

namespace kvasir::codec {

// kSides       what it may store;  kIsRotated: rows decode to rotated ones (KV-16)
// variants     its widths and groups;  centroids: the values of codes, where they are no integers
// kHasOffset   rows have the third part;  kHasZeroPoint: it counts in scales
// group_of     elements that share a scale;  is_signed: codes are two's complement
// encode       x[dim] → the parts of a row;  decode: the row's exact meaning in f32
// unpack       codes[dim], scales[dim / group], offsets[dim / group] (zeros without): the split
//              that products use
enum class KvSides : std::uint8_t { keys, values, both };
struct KvVariant {
  std::uint8_t bits;
  std::uint16_t group;
  std::optional<ScaleType> scale_type = {};  // none: the layer's exact type
};

// clang-format off
template <class C>
concept KvRowCodec = requires(const KvCodec& c, KvRowPart part, std::uint32_t dim, const KvRow& row, const float* x, float* f) {
  { C::kSides } -> std::convertible_to<KvSides>;
  { C::kIsRotated } -> std::convertible_to<bool>;
  { C::variants() } noexcept -> std::same_as<std::span<const KvVariant>>;
  { C::centroids(c) } noexcept -> std::same_as<std::span<const float>>;
  { C::kHasOffset } -> std::convertible_to<bool>;
  { C::kHasZeroPoint } -> std::convertible_to<bool>;
  { C::can_store(c, dim) } noexcept -> std::same_as<bool>;
  { C::group_of(c) } noexcept -> std::same_as<std::uint32_t>;
  { C::is_signed(c) } noexcept -> std::same_as<bool>;
  { C::row_bytes(c, part, dim) } noexcept -> std::same_as<std::size_t>;
  { C::signature_part(c) } -> std::same_as<std::string>;
  { C::encode(c, x, dim, row) } noexcept;
  { C::decode(c, row, dim, f) } noexcept;
  { C::unpack(c, row, dim, f, f, f) } noexcept;
};
// clang-format on

constexpr std::size_t index_of(KvRowPart part) noexcept { return static_cast<std::size_t>(part); }
inline std::byte* part_of(const KvRow& row, KvRowPart part) noexcept {
  return row.planes[index_of(part)];
}

// Codes lie in a little-endian bitstream: element i at bit i · bits (KV-10, KV-17). n · bits: whole
// bytes. bits: at most 8.
inline void pack_codes(const std::uint8_t* codes, std::size_t n, int bits, std::byte* to) noexcept {
  std::uint32_t held = 0;
  int n_held = 0;
  for (std::size_t i = 0; i < n; ++i) {
    held |= std::uint32_t{codes[i]} << n_held;
    for (n_held += bits; n_held >= 8; n_held -= 8, held >>= 8)
      *to++ = static_cast<std::byte>(held & 0xffu);
  }
}
inline std::uint32_t code_at(const std::byte* plane, std::size_t i, int bits) noexcept {
  const std::size_t bit = i * static_cast<std::size_t>(bits), at = bit / 8, place = bit % 8;
  auto window = std::to_integer<std::uint32_t>(plane[at]);
  if (place + static_cast<std::size_t>(bits) > 8)
    window |= std::to_integer<std::uint32_t>(plane[at + 1]) << 8;
  return window >> place & ((1u << bits) - 1u);
}

inline void store_scale(std::byte* plane, ScaleType type, std::size_t i, float value) noexcept {
  if (type == ScaleType::f32) {
    std::memcpy(plane + 4 * i, &value, 4);
  } else {
    const std::uint16_t half = type == ScaleType::f16 ? to_f16(value).bits : to_bf16(value).bits;
    std::memcpy(plane + 2 * i, &half, 2);
  }
}
inline float load_scale(const std::byte* plane, ScaleType type, std::size_t i) noexcept {
  switch (type) {
    case ScaleType::f32:
      return f32_at(plane + 4 * i);
    case ScaleType::f16:
      return f16_at(plane + 2 * i);
    case ScaleType::bf16:
      return bf16_at(plane + 2 * i);
  }
  return 0.0f;
}

// NaN where any element is one.
struct GroupRange {
  float smallest, largest;
};
inline GroupRange range_of(const float* x, std::size_t n) noexcept {  // n: a multiple of 8
  constexpr std::size_t kLanes = 8;  // so that the compiler can use vectors
  float low[kLanes], high[kLanes];
  int nans[kLanes] = {};
  for (std::size_t l = 0; l < kLanes; ++l) low[l] = high[l] = x[l];
  for (std::size_t i = 0; i < n; i += kLanes) {
    for (std::size_t l = 0; l < kLanes; ++l) {
      low[l] = x[i + l] < low[l] ? x[i + l] : low[l];
      high[l] = x[i + l] > high[l] ? x[i + l] : high[l];
      nans[l] |= x[i + l] != x[i + l] ? 1 : 0;
    }
  }
  for (std::size_t l = 1; l < kLanes; ++l) {
    low[0] = low[l] < low[0] ? low[l] : low[0];
    high[0] = high[l] > high[0] ? high[l] : high[0];
    nans[0] |= nans[l];
  }
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  return nans[0] != 0 ? GroupRange{kNan, kNan} : GroupRange{low[0], high[0]};
}

// rint(x) within [low, high], which are integers of a few bits; NaN gives low. Adding and taking
// away 1.5 · 2^23 rounds half to even without a call.
inline int round_within(float x, float low, float high) noexcept {
  const float inside = !(x > low) ? low : x < high ? x : high;
  return static_cast<int>((inside + 12582912.0f) - 12582912.0f);
}

}  // namespace kvasir::codec
