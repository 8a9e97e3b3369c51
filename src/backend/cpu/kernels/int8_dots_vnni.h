// As in int8_dots_portable.h, one instruction.
#pragma once

#include "backend/cpu/kernels/int8_words_avx512.h"

namespace kvasir::backend::cpu {
namespace {

constexpr int kInt8Rows = 4, kInt8Halves = 2;
constexpr std::uint32_t kInt8DirectRows = 8;

template <bool kNibble>
inline U32x16 dot(U32x16 acc, U32x16 codes, U32x16 v) {
  return _mm512_dpbusd_epi32(acc, codes, v);
}

inline U32x16 dot_words(U32x16 acc, U32x16 words, U32x16 x) {
  return _mm512_dpwssd_epi32(acc, words, x);
}

}  // namespace
}  // namespace kvasir::backend::cpu
