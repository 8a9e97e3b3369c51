// As in int8_dots_avx2.h, for AVX-512 without VNNI.
#pragma once

#include "backend/cpu/kernels/int8_words_avx512.h"

namespace kvasir::backend::cpu {
namespace {

constexpr int kInt8Rows = 4, kInt8Halves = 2;
constexpr std::uint32_t kInt8DirectRows = 8;

inline __m512i pairs_times(__m512i codes, __m512i v, int weight) {
  return _mm512_madd_epi16(_mm512_maddubs_epi16(codes, v),
                           _mm512_set1_epi16(static_cast<short>(weight)));
}

template <bool kNibble>
inline U32x16 dot(U32x16 acc, U32x16 codes, U32x16 v) {
  if constexpr (kNibble) return _mm512_add_epi32(acc, pairs_times(codes, v, 1));
  const __m512i mask = _mm512_set1_epi8(15);
  const __m512i low = _mm512_and_si512(codes, mask),
                high = _mm512_and_si512(_mm512_srli_epi32(codes, 4), mask);
  return _mm512_add_epi32(acc, _mm512_add_epi32(pairs_times(low, v, 1), pairs_times(high, v, 16)));
}

inline U32x16 dot_words(U32x16 acc, U32x16 words, U32x16 x) {
  return _mm512_add_epi32(acc, _mm512_madd_epi16(words, x));
}

}  // namespace
}  // namespace kvasir::backend::cpu
