// packed_size_bytes against what pack() takes, every type, whole and ragged shapes.
#include <gtest/gtest.h>

#include "backend/cpu/testing/weights.h"

namespace kvasir::backend::cpu {
namespace {

class PackedSize : public ::testing::TestWithParam<std::string> {};

TEST_P(PackedSize, IsWhatPackTakes) {  // FIT-3
  std::mt19937 rng(17);
  const auto device = testing::make();
  for (const std::uint32_t n_out : {32u, 40u, 97u}) {
    const testing::StoredWeight weight(GetParam(), n_out, 512, rng);
    for (const bool exact_f32 : {false, true}) {
      const auto packed = device->pack(weight.view(), {.exact_f32 = exact_f32});
      const auto expected = packed_size_bytes(weight.view(), {.exact_f32 = exact_f32});

      ASSERT_EQ(static_cast<bool>(packed), static_cast<bool>(expected));
      if (!packed) continue;
      EXPECT_EQ((*packed)->size_bytes(), *expected) << n_out << " exact " << exact_f32;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllTypes,
                         PackedSize,
                         ::testing::ValuesIn(testing::all_types()),
                         [](const auto& type) { return type.param; });

}  // namespace
}  // namespace kvasir::backend::cpu
