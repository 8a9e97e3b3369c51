// Dense weights: F32, F16, BF16, little-endian.
#pragma once

#include <cstring>

#include "base/half.h"
#include "codec/weight_codec.h"

namespace kvasir::codec {

struct F32 {
  static constexpr std::string_view kName = "f32";
  static constexpr std::size_t kBlock = 1, kBlockBytes = 4;
  static constexpr int kGgufType = 0;
  static constexpr bool kQuantized = false;
  static void decode(const std::byte* block, float* out) noexcept { std::memcpy(out, block, 4); }
};

struct F16 {
  static constexpr std::string_view kName = "f16";
  static constexpr std::size_t kBlock = 1, kBlockBytes = 2;
  static constexpr int kGgufType = 1;
  static constexpr bool kQuantized = false;
  static void decode(const std::byte* block, float* out) noexcept {
    Float16 h;
    std::memcpy(&h.bits, block, 2);
    *out = to_f32(h);
  }
};

struct BF16 {
  static constexpr std::string_view kName = "bf16";
  static constexpr std::size_t kBlock = 1, kBlockBytes = 2;
  static constexpr int kGgufType = 30;
  static constexpr bool kQuantized = false;
  static void decode(const std::byte* block, float* out) noexcept {
    BFloat16 h;
    std::memcpy(&h.bits, block, 2);
    *out = to_f32(h);
  }
};

}  // namespace kvasir::codec
