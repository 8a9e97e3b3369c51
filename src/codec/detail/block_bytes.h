// Reading the parts of a block: bytes, halves of bytes, half floats; any alignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"

namespace kvasir::codec {

inline int byte_at(const std::byte* at, std::size_t i) noexcept {
  return std::to_integer<int>(at[i]);
}
inline int low_nibble(const std::byte* at, std::size_t i) noexcept { return byte_at(at, i) & 15; }
inline int high_nibble(const std::byte* at, std::size_t i) noexcept { return byte_at(at, i) >> 4; }

inline float f16_at(const std::byte* at) noexcept {
  Float16 h;
  std::memcpy(&h.bits, at, sizeof h.bits);
  return to_f32(h);
}
inline float bf16_at(const std::byte* at) noexcept {
  BFloat16 h;
  std::memcpy(&h.bits, at, sizeof h.bits);
  return to_f32(h);
}
inline float f32_at(const std::byte* at) noexcept {
  float f;
  std::memcpy(&f, at, sizeof f);
  return f;
}
inline std::uint16_t u16_at(const std::byte* at) noexcept {
  std::uint16_t u;
  std::memcpy(&u, at, sizeof u);
  return u;
}
inline std::uint32_t u32_at(const std::byte* at) noexcept {
  std::uint32_t u;
  std::memcpy(&u, at, sizeof u);
  return u;
}

}  // namespace kvasir::codec
