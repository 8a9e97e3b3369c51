// The rotation of turbo values: random signs (KV-14), a Walsh-Hadamard transform in natural order,
// 1 / sqrt(dim). Orthogonal, and its own inverse but for the order of signs and transform.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace kvasir::codec {

// Bit i % 64 of word i / 64 set: sign i is -1. Output i of splitmix64 from state 42, its bit 63.
inline constexpr std::uint64_t kSignWords[8] = {
    0x67831947fcd872a1u, 0x03a2a1d567d22ef6u, 0x9a95107cbef8f3d6u, 0x63fe483e793abff4u,
    0x825f3055eedfa2b5u, 0x13f289c613e64422u, 0x5cc293e2ec2aa92du, 0x19941b0ba9d3d12du};
inline constexpr std::uint32_t kMaxRotatedDim = 512;

constexpr bool is_negative_sign(std::size_t i) noexcept {
  return (kSignWords[i / 64] >> (i % 64) & 1u) != 0;
}

inline constexpr auto kSigns = [] {
  std::array<float, kMaxRotatedDim> signs{};
  for (std::size_t i = 0; i < signs.size(); ++i) signs[i] = is_negative_sign(i) ? -1.0f : 1.0f;
  return signs;
}();

// 64, 128, 256 or 512 (KV-7).
constexpr bool can_rotate(std::uint32_t dim) noexcept {
  return dim >= 64 && dim <= kMaxRotatedDim && (dim & (dim - 1)) == 0;
}

// 1 / sqrt(dim), the f64 value; f32 users round it once.
constexpr double rotation_scale(std::uint32_t dim) noexcept {
  return dim == 64    ? 0.125
         : dim == 128 ? 0.08838834764831845
         : dim == 256 ? 0.0625
                      : 0.04419417382415922;
}

template <class T>
void walsh_hadamard(T* x, std::uint32_t dim) noexcept {
  for (std::uint32_t half = 1; half < dim; half *= 2) {
    for (std::uint32_t begin = 0; begin < dim; begin += 2 * half) {
      T* const low = x + begin;
      T* const high = low + half;
      for (std::uint32_t i = 0; i < half; ++i) {
        const T a = low[i], b = high[i];
        low[i] = a + b;
        high[i] = a - b;
      }
    }
  }
}

template <class T>
void apply_signs(T* x, std::uint32_t dim) noexcept {
  for (std::uint32_t i = 0; i < dim; ++i) x[i] *= static_cast<T>(kSigns[i]);
}

template <class T>
void scale_rotated(T* x, std::uint32_t dim) noexcept {
  const T scale = static_cast<T>(rotation_scale(dim));
  for (std::uint32_t i = 0; i < dim; ++i) x[i] *= scale;
}

template <class T>
void rotate_row(T* x, std::uint32_t dim) noexcept {
  apply_signs(x, dim);
  walsh_hadamard(x, dim);
  scale_rotated(x, dim);
}

template <class T>
void unrotate_row(T* x, std::uint32_t dim) noexcept {
  walsh_hadamard(x, dim);
  scale_rotated(x, dim);
  apply_signs(x, dim);
}

}  // namespace kvasir::codec
