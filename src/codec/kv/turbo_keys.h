// Turbo keys: groups of 32, element = (code + zero) · scale, scale and zero in f16 (KV-11). 8-bit
// codes are signed. A group too flat or too wide for f16 is stored as its middle, a constant
// (KV-12).
#pragma once

#include "codec/kv/rotation.h"
#include "codec/kv/row_codec.h"

namespace kvasir::codec {

struct KvTurboKeys {
  static constexpr KvSides kSides = KvSides::keys;
  static constexpr bool kIsRotated = false;
  static constexpr bool kHasOffset = true;
  static constexpr bool kHasZeroPoint = true;
  static constexpr std::uint32_t kGroup = 32;
  static constexpr float kEpsilon = 1e-8f, kLargestF16 = 65504.0f;

  static bool can_store(const KvCodec& c, std::uint32_t dim) noexcept {
    return (c.bits == 2 || c.bits == 4 || c.bits == 5 || c.bits == 8) && can_rotate(dim);
  }
  static std::span<const KvVariant> variants() noexcept {
    static constexpr auto kF16 = ScaleType::f16;
    static constexpr KvVariant kAll[] = {
        {2, 32, kF16}, {4, 32, kF16}, {5, 32, kF16}, {8, 32, kF16}};
    return kAll;
  }
  static std::span<const float> centroids(const KvCodec&) noexcept { return {}; }
  static std::uint32_t group_of(const KvCodec&) noexcept { return kGroup; }
  static bool is_signed(const KvCodec& c) noexcept { return c.bits == 8; }
  static std::size_t row_bytes(const KvCodec& c, KvRowPart part, std::uint32_t dim) noexcept {
    return part == KvRowPart::codes ? std::size_t{dim} * c.bits / 8 : dim / kGroup * 2;
  }
  static std::string signature_part(const KvCodec& c) { return "turbo:" + std::to_string(c.bits); }

  static void encode(const KvCodec& c,
                     const float* x,
                     std::uint32_t dim,
                     const KvRow& to) noexcept {
    for (std::size_t g = 0; g < dim / kGroup; ++g) {
      const float* const group = x + g * kGroup;
      const GroupRange range = range_of(group, kGroup);
      std::uint8_t codes[kGroup] = {};
      Scaling s = scaling_of(range, c.bits);
      if (is_storable(s)) {
        find_codes(group, s, c.bits, codes);
      } else {
        s = {.scale = clamp((range.largest + range.smallest) / 2.0f), .zero = 1.0f};
      }
      pack_codes(codes, kGroup, c.bits, part_of(to, KvRowPart::codes) + g * kGroup * c.bits / 8);
      store_scale(part_of(to, KvRowPart::scales), ScaleType::f16, g, s.scale);
      store_scale(part_of(to, KvRowPart::offsets), ScaleType::f16, g, s.zero);
    }
  }
  static void decode(const KvCodec& c, const KvRow& from, std::uint32_t dim, float* out) noexcept {
    for (std::size_t i = 0; i < dim; ++i) {
      const float zero = load_scale(part_of(from, KvRowPart::offsets), ScaleType::f16, i / kGroup);
      const float scale = load_scale(part_of(from, KvRowPart::scales), ScaleType::f16, i / kGroup);
      out[i] = (code_value(from, i, c.bits) + zero) * scale;
    }
  }
  // The offset of a group is zero · scale, rounded to f32.
  static void unpack(const KvCodec& c,
                     const KvRow& from,
                     std::uint32_t dim,
                     float* codes,
                     float* scales,
                     float* offsets) noexcept {
    for (std::size_t i = 0; i < dim; ++i) codes[i] = code_value(from, i, c.bits);
    for (std::size_t g = 0; g < dim / kGroup; ++g) {
      scales[g] = load_scale(part_of(from, KvRowPart::scales), ScaleType::f16, g);
      offsets[g] = load_scale(part_of(from, KvRowPart::offsets), ScaleType::f16, g) * scales[g];
    }
  }

 private:
  struct Scaling {
    float scale, zero;
  };
  static float clamp(float x) noexcept {  // a NaN stays one
    return x < -kLargestF16 ? -kLargestF16 : x > kLargestF16 ? kLargestF16 : x;
  }
  static Scaling scaling_of(GroupRange range, int bits) noexcept {
    if (bits == 8) {
      const float scale = (range.largest - range.smallest) / 254.0f;
      return {scale, std::rint((range.largest + range.smallest) / (2.0f * (scale + kEpsilon)))};
    }
    const float scale = (range.largest - range.smallest) / static_cast<float>((1 << bits) - 1);
    return {scale, std::rint(range.smallest / (scale + kEpsilon))};
  }
  static bool is_storable(Scaling s) noexcept {
    const float stored = to_f32(to_f16(s.scale));
    return stored != 0.0f && std::isfinite(stored) && std::fabs(s.zero) <= kLargestF16;
  }
  static void find_codes(const float* x, Scaling s, int bits, std::uint8_t* codes) noexcept {
    const float low = bits == 8 ? -127.0f : 0.0f;
    const float high = bits == 8 ? 127.0f : static_cast<float>((1 << bits) - 1);
    const float divisor = s.scale + kEpsilon;
    for (std::size_t i = 0; i < kGroup; ++i)
      codes[i] = static_cast<std::uint8_t>(round_within(x[i] / divisor - s.zero, low, high));
  }
  static float code_value(const KvRow& row, std::size_t i, int bits) noexcept {
    const std::uint32_t code = code_at(part_of(row, KvRowPart::codes), i, bits);
    return bits == 8 ? static_cast<float>(static_cast<std::int8_t>(code))
                     : static_cast<float>(code);
  }
};

}  // namespace kvasir::codec
