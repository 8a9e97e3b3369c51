// As in int8_dots_portable.h, one instruction.
#pragma once

#include "backend/cpu/kernels/vec_avx512.h"

namespace kvasir::backend::cpu {
namespace {

constexpr int kInt8WideRows = 4, kInt8Rows = 8;
constexpr std::uint32_t kInt8DirectRows = 8;

template <bool kNibble>
inline U32x16 dot(U32x16 acc, U32x16 codes, std::uint32_t v) {
  return _mm512_dpbusd_epi32(acc, codes, _mm512_set1_epi32(static_cast<int>(v)));
}

}  // namespace
}  // namespace kvasir::backend::cpu
