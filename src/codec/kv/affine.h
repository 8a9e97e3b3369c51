// Affine rows: per group a scale and a bias, element = fma(code, scale, bias), codes unsigned
// (KV-9). The edge of the range with the larger magnitude is kept exactly, and zero falls on a
// code.
#pragma once

#include "codec/kv/row_codec.h"

namespace kvasir::codec {

struct KvAffine {
  static constexpr KvSides kSides = KvSides::both;
  static constexpr bool kIsRotated = false;
  static constexpr bool kHasOffset = true;
  static constexpr bool kHasZeroPoint = false;
  static constexpr float kSmallestScale = 1e-7f;
  static constexpr std::size_t kLargestGroup = 128;

  static bool can_store(const KvCodec& c, std::uint32_t dim) noexcept {
    const bool is_known =
        (c.bits == 4 || c.bits == 8) && (c.group == 32 || c.group == 64 || c.group == 128);
    return is_known && dim > 0 && dim % c.group == 0;
  }
  static std::span<const KvVariant> variants() noexcept {
    static constexpr KvVariant kAll[] = {{4, 32}, {4, 64}, {4, 128}, {8, 32}, {8, 64}, {8, 128}};
    return kAll;
  }
  static std::span<const float> centroids(const KvCodec&) noexcept { return {}; }
  static std::uint32_t group_of(const KvCodec& c) noexcept { return c.group; }
  static bool is_signed(const KvCodec&) noexcept { return false; }
  static std::size_t row_bytes(const KvCodec& c, KvRowPart part, std::uint32_t dim) noexcept {
    return part == KvRowPart::codes ? std::size_t{dim} * c.bits / 8
                                    : dim / c.group * size_of(c.scale_type);
  }
  static std::string signature_part(const KvCodec& c) {
    return "affine:" + std::to_string(c.bits) + ":" + std::to_string(c.group);
  }

  static void encode(const KvCodec& c,
                     const float* x,
                     std::uint32_t dim,
                     const KvRow& to) noexcept {
    const auto top = static_cast<float>((1 << c.bits) - 1);
    std::uint8_t codes[kLargestGroup];
    for (std::size_t g = 0; g < dim / c.group; ++g) {
      const float* const group = x + g * c.group;
      const Scaling scaling = scaling_of(range_of(group, c.group), top);
      for (std::size_t i = 0; i < c.group; ++i) {
        const float steps = (group[i] - scaling.bias) / scaling.scale;
        codes[i] = static_cast<std::uint8_t>(round_within(steps, 0.0f, top));
      }
      pack_codes(codes, c.group, c.bits, part_of(to, KvRowPart::codes) + g * c.group * c.bits / 8);
      store_scale(part_of(to, KvRowPart::scales), c.scale_type, g, scaling.scale);
      store_scale(part_of(to, KvRowPart::offsets), c.scale_type, g, scaling.bias);
    }
  }
  static void decode(const KvCodec& c, const KvRow& from, std::uint32_t dim, float* out) noexcept {
    for (std::size_t i = 0; i < dim; ++i) {
      const std::uint32_t code = code_at(part_of(from, KvRowPart::codes), i, c.bits);
      out[i] = std::fma(static_cast<float>(code),
                        load_scale(part_of(from, KvRowPart::scales), c.scale_type, i / c.group),
                        load_scale(part_of(from, KvRowPart::offsets), c.scale_type, i / c.group));
    }
  }
  static void unpack(const KvCodec& c,
                     const KvRow& from,
                     std::uint32_t dim,
                     float* codes,
                     float* scales,
                     float* offsets) noexcept {
    for (std::size_t i = 0; i < dim; ++i)
      codes[i] = static_cast<float>(code_at(part_of(from, KvRowPart::codes), i, c.bits));
    for (std::size_t g = 0; g < dim / c.group; ++g) {
      scales[g] = load_scale(part_of(from, KvRowPart::scales), c.scale_type, g);
      offsets[g] = load_scale(part_of(from, KvRowPart::offsets), c.scale_type, g);
    }
  }

 private:
  struct Scaling {
    float scale, bias;
  };
  static Scaling scaling_of(GroupRange range, float top) noexcept {
    float scale = (range.largest - range.smallest) / top;
    if (scale < kSmallestScale) scale = kSmallestScale;
    float edge = range.smallest;
    if (!(std::fabs(range.smallest) > std::fabs(range.largest))) {
      scale = -scale;
      edge = range.largest;
    }
    const float steps = std::rint(edge / scale);
    return steps != 0.0f ? Scaling{edge / steps, edge} : Scaling{scale, 0.0f};
  }
};

}  // namespace kvasir::codec
