// Rows that are not encoded: elements rounded to f32, f16 or bf16 (KV-1).
#pragma once

#include "codec/kv/row_codec.h"

namespace kvasir::codec {

struct KvExact {
  static constexpr KvSides kSides = KvSides::both;
  static constexpr bool kIsRotated = false;
  static constexpr bool kHasOffset = false;
  static constexpr bool kHasZeroPoint = false;

  static bool can_store(const KvCodec&, std::uint32_t dim) noexcept { return dim > 0; }
  static std::span<const KvVariant> variants() noexcept { return {}; }  // not an encoded form
  static std::span<const float> centroids(const KvCodec&) noexcept { return {}; }
  static std::uint32_t group_of(const KvCodec&) noexcept { return 1; }
  static bool is_signed(const KvCodec&) noexcept { return false; }
  static std::size_t row_bytes(const KvCodec& c, KvRowPart part, std::uint32_t dim) noexcept {
    return part == KvRowPart::codes ? dim * size_of(c.scale_type) : 0;
  }
  static std::string signature_part(const KvCodec& c) {
    return c.scale_type == ScaleType::f32 ? "f32" : c.scale_type == ScaleType::f16 ? "f16" : "bf16";
  }
  static void encode(const KvCodec& c,
                     const float* x,
                     std::uint32_t dim,
                     const KvRow& to) noexcept {
    for (std::size_t i = 0; i < dim; ++i)
      store_scale(part_of(to, KvRowPart::codes), c.scale_type, i, x[i]);
  }
  static void decode(const KvCodec& c, const KvRow& from, std::uint32_t dim, float* out) noexcept {
    for (std::size_t i = 0; i < dim; ++i)
      out[i] = load_scale(part_of(from, KvRowPart::codes), c.scale_type, i);
  }
  static void unpack(const KvCodec& c,
                     const KvRow& from,
                     std::uint32_t dim,
                     float* codes,
                     float* scales,
                     float* offsets) noexcept {
    decode(c, from, dim, codes);
    for (std::size_t i = 0; i < dim; ++i) scales[i] = 1.0f, offsets[i] = 0.0f;
  }
};

}  // namespace kvasir::codec
