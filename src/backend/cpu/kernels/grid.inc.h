// The grid of a group of activations (docs/numerics.md): whole units of a power of two, so few that
// products with a step's codes are exact in f32, in whatever order they are added up.

namespace kvasir::backend::cpu {
namespace {

// The largest exponent of a group, as stored in f32. An infinity or a NaN has the largest there is.
inline std::uint32_t largest_exponent(const F32x16* values, std::uint32_t n) {
  F32x16 largest = zero();  // of halved bits: as ordered as the magnitudes, and all of them finite
  for (std::uint32_t i = 0; i < n; ++i)
    largest = max(from_bits(shift_right<2>(shift_left<1>(bits(values[i])))), largest);
  const float most = max_lanes(largest);
  std::uint32_t halved = 0;
  __builtin_memcpy(&halved, &most, sizeof(halved));
  return halved >> 22;
}

constexpr std::uint32_t kExponentBias = 127, kLeastExponent = kExponentBias - 100,
                        kPastExponent = kExponentBias + 100;  // a group that reaches it is NaN

// What is added to a value and taken away again to round it to the grid: 1.5 · 2^23 units.
inline std::uint32_t grid_shift_bits(std::uint32_t exponent, std::uint32_t grid) {
  return (exponent + 23 - grid) << 23 | 0x400000u;
}

inline float unit_of(std::uint32_t exponent, std::uint32_t grid) {
  const std::uint32_t of_unit = (exponent - grid) << 23;
  float unit = 0.0f;
  __builtin_memcpy(&unit, &of_unit, sizeof(unit));
  return unit;
}

}  // namespace
}  // namespace kvasir::backend::cpu
