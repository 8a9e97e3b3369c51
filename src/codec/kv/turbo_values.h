// Turbo values: the row is rotated, which makes its elements near normal; groups of 32 share their
// root mean square in f16, and codes name centroids of the normal distribution (KV-13). Rows decode
// to the rotated row.
#pragma once

#include <algorithm>
#include <span>

#include "codec/kv/codebooks.h"
#include "codec/kv/rotation.h"
#include "codec/kv/row_codec.h"

namespace kvasir::codec {

struct KvTurboValues {
  static constexpr KvSides kSides = KvSides::values;
  static constexpr bool kIsRotated = true;
  static constexpr bool kHasOffset = false;
  static constexpr bool kHasZeroPoint = false;
  static constexpr std::uint32_t kGroup = 32;
  static constexpr float kEpsilon = 1e-8f, kLargestF16 = 65504.0f;

  static bool can_store(const KvCodec& c, std::uint32_t dim) noexcept {
    return !codebook_of(c.bits).centroids.empty() && can_rotate(dim);
  }
  static std::span<const KvVariant> variants() noexcept {
    static constexpr auto kF16 = ScaleType::f16;
    static constexpr KvVariant kAll[] = {
        {2, 32, kF16}, {3, 32, kF16}, {4, 32, kF16}, {5, 32, kF16}, {8, 32, kF16}};
    return kAll;
  }
  static std::span<const float> centroids(const KvCodec& c) noexcept {
    return codebook_of(c.bits).centroids;
  }
  static std::uint32_t group_of(const KvCodec&) noexcept { return kGroup; }
  static bool is_signed(const KvCodec&) noexcept { return false; }
  static std::size_t row_bytes(const KvCodec& c, KvRowPart part, std::uint32_t dim) noexcept {
    return part == KvRowPart::codes    ? std::size_t{dim} * c.bits / 8
           : part == KvRowPart::scales ? dim / kGroup * 2
                                       : 0;
  }
  static std::string signature_part(const KvCodec& c) { return "turbo:" + std::to_string(c.bits); }

  static void encode(const KvCodec& c,
                     const float* x,
                     std::uint32_t dim,
                     const KvRow& to) noexcept {
    float y[kMaxRotatedDim];
    std::copy_n(x, dim, y);
    rotate_row(y, dim);
    for (std::size_t g = 0; g < dim / kGroup; ++g) {
      float* const group = y + g * kGroup;
      const float scale = root_mean_square(group), divisor = scale + kEpsilon;
      for (std::size_t i = 0; i < kGroup; ++i) group[i] /= divisor;
      std::uint8_t codes[kGroup] = {};
      find_codes(group, codebook_of(c.bits).borders, codes);
      pack_codes(codes, kGroup, c.bits, part_of(to, KvRowPart::codes) + g * kGroup * c.bits / 8);
      store_scale(part_of(to, KvRowPart::scales), ScaleType::f16, g, scale);
    }
  }
  static void decode(const KvCodec& c, const KvRow& from, std::uint32_t dim, float* out) noexcept {
    const auto centroids = codebook_of(c.bits).centroids;
    for (std::size_t i = 0; i < dim; ++i) {
      out[i] = centroids[code_at(part_of(from, KvRowPart::codes), i, c.bits)] *
               load_scale(part_of(from, KvRowPart::scales), ScaleType::f16, i / kGroup);
    }
  }
  static void unpack(const KvCodec& c,
                     const KvRow& from,
                     std::uint32_t dim,
                     float* codes,
                     float* scales,
                     float* offsets) noexcept {
    const auto centroids = codebook_of(c.bits).centroids;
    for (std::size_t i = 0; i < dim; ++i)
      codes[i] = centroids[code_at(part_of(from, KvRowPart::codes), i, c.bits)];
    for (std::size_t g = 0; g < dim / kGroup; ++g) {
      scales[g] = load_scale(part_of(from, KvRowPart::scales), ScaleType::f16, g);
      offsets[g] = 0.0f;
    }
  }

 private:
  // How many borders lie strictly below each element.
  static void find_codes(const float* x,
                         std::span<const float> borders,
                         std::uint8_t* codes) noexcept {
    constexpr std::size_t kFew = 32;  // up to here counting is faster than searching
    if (borders.size() < kFew) {
      for (const float border : borders)
        for (std::size_t i = 0; i < kGroup; ++i)
          codes[i] = static_cast<std::uint8_t>(codes[i] + (border < x[i] ? 1 : 0));
      return;
    }
    for (std::size_t i = 0; i < kGroup; ++i) {
      const auto above = std::lower_bound(borders.begin(), borders.end(), x[i]);
      codes[i] = static_cast<std::uint8_t>(above - borders.begin());
    }
  }
  // Squares added in ascending order; at most what f16 holds. A NaN stays one.
  static float root_mean_square(const float* y) noexcept {
    float sum = 0.0f;
    for (std::size_t i = 0; i < kGroup; ++i) sum += y[i] * y[i];
    const float scale = std::sqrt(sum / static_cast<float>(kGroup));
    return scale > kLargestF16 ? kLargestF16 : scale;
  }
};

}  // namespace kvasir::codec
