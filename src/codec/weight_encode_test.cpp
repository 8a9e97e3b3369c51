#include "codec/weight_encode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/philox.h"
#include "codec/list.h"

namespace kvasir::codec {
namespace {

constexpr std::size_t kElements = 256;

std::vector<float> some_values(float scale) {
  std::vector<float> out(kElements);
  for (std::uint32_t i = 0; i < kElements; ++i)
    out[i] =
        scale * (static_cast<float>(philox4x32({i, 0, 0, 0}, {7, 0})[0] >> 8) / 8388608.0f - 1.0f);
  return out;
}

std::vector<float> round_trip(WeightType type, const std::vector<float>& x) {
  std::vector<std::byte> codes(4 * kElements), scales(4 * kElements), biases(4 * kElements);
  encode_row(type, x.data(), x.size(), {codes.data(), scales.data(), biases.data()});
  RowPlanes row;
  row.codes = codes.data();
  row.scales = scales.data();
  row.biases = biases.data();
  row.scale_type = ScaleType::bf16;
  std::vector<float> out(x.size());
  decode_row(type, row, x.size(), out.data());
  return out;
}

// Of the largest magnitude in a row: half a step of the codes, and the rounding of scale and bias.
float bound(const WeightTypeInfo& type) {
  if (type.name == "f32") return 0.0f;
  if (type.name == "f16") return 0x1p-11f;
  if (type.name == "bf16") return 0x1p-8f;
  const float step = 2.0f / static_cast<float>((1 << type.bits) - 1);
  // Ranges that are moved so that zero or one end falls on a code lose up to a step at the other.
  const bool is_moved = type.name == "q4_0" || type.scale_plane == ScalePlane::floats;
  const float code = is_moved ? step : step / 2.0f;
  const float scale = type.scale_plane == ScalePlane::floats ? 3 * 0x1p-8f : 3 * 0x1p-11f;
  return code + scale;
}

TEST(WeightEncode, DecodingGivesEveryElementBackWithinAStep) {
  std::size_t n_types = 0;
  WeightCodecs::for_each([&]<class C>() {
    const WeightType type = *find_weight_type(C::kName);
    if (!can_encode(type)) return;
    ++n_types;
    for (const float scale : {1.0f, 3e-3f}) {
      const std::vector<float> x = some_values(scale), y = round_trip(type, x);
      for (std::size_t i = 0; i < x.size(); ++i)
        ASSERT_NEAR(x[i], y[i], scale * bound(info(type))) << C::kName << " element " << i;
    }
  });
  EXPECT_EQ(n_types, 12u);
}

TEST(WeightEncode, ARowOfZerosStaysOne) {
  WeightCodecs::for_each([&]<class C>() {
    const WeightType type = *find_weight_type(C::kName);
    if (!can_encode(type)) return;
    const std::vector<float> zeros(kElements, 0.0f);

    EXPECT_EQ(round_trip(type, zeros), zeros) << C::kName;
  });
}

}  // namespace
}  // namespace kvasir::codec
