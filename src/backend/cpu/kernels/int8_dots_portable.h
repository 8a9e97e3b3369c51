// dot: acc + the four products of a lane's unsigned codes and of v's signed ones, exactly.
#pragma once

#include "backend/cpu/kernels/vec_portable.h"

namespace kvasir::backend::cpu {
namespace {

// Rows and halves of a panel whose sums registers hold, of integers and of floats.
constexpr int kInt8Rows = 4, kInt8Halves = 1;
constexpr std::uint32_t kInt8DirectRows = 2;

template <bool kNibble>
inline U32x16 dot(const U32x16& acc, const U32x16& codes, const U32x16& v) {
  return lanes<U32x16>([&](int i) {
    std::uint32_t sum = acc.at[i];
    for (int byte = 0; byte < 4; ++byte) {
      const auto x = static_cast<std::int8_t>(v.at[i] >> 8 * byte);
      sum += (codes.at[i] >> 8 * byte & 255u) * static_cast<std::uint32_t>(x);
    }
    return sum;
  });
}

}  // namespace
}  // namespace kvasir::backend::cpu
