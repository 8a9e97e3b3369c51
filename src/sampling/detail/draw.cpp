#include "sampling/detail/draw.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/philox.h"

namespace kvasir::sampling::detail {
namespace {

std::array<std::uint32_t, 2> key_of(std::uint64_t seed) noexcept {
  return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
}

PhiloxWords words_at(std::uint64_t seed,
                     std::uint64_t position,
                     std::uint32_t lane,
                     Stream stream) noexcept {
  return philox4x32(
      {static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32), lane,
       static_cast<std::uint32_t>(stream)},
      key_of(seed));
}

}  // namespace

float scale_of(float temperature) noexcept {
  return std::min(1.0f / temperature, std::numeric_limits<float>::max());
}

TokenId draw_token(std::span<const float> x,
                   const Peak& top,
                   float temperature,
                   std::uint64_t seed,
                   std::uint64_t position) noexcept {
  return draw_scaled(x, top, scale_of(temperature), seed, position);
}

double xtc_uniform(std::uint64_t seed, std::uint64_t position) noexcept {
  return (words_at(seed, position, 0, Stream::xtc)[0] + 0.5) * 0x1p-32;
}

}  // namespace kvasir::sampling::detail
