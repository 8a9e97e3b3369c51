// As in int8_dots_portable.h. Pairs of products are added in 16 bits, which saturate beyond 32767:
// nibbles cannot reach that (2 · 15 · 127), so bytes are multiplied as two of them.
#pragma once

#include "backend/cpu/kernels/int8_words_avx2.h"

namespace kvasir::backend::cpu {
namespace {

constexpr int kInt8Rows = 2, kInt8Halves = 1;
constexpr std::uint32_t kInt8DirectRows = 2;

inline __m256i pairs_times(__m256i codes, __m256i v, int weight) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(codes, v),
                           _mm256_set1_epi16(static_cast<short>(weight)));
}

template <bool kNibble>
inline __m256i dot_half(__m256i acc, __m256i codes, __m256i v) {
  if constexpr (kNibble) return _mm256_add_epi32(acc, pairs_times(codes, v, 1));
  const __m256i mask = _mm256_set1_epi8(15);
  const __m256i low = _mm256_and_si256(codes, mask),
                high = _mm256_and_si256(_mm256_srli_epi32(codes, 4), mask);
  return _mm256_add_epi32(acc, _mm256_add_epi32(pairs_times(low, v, 1), pairs_times(high, v, 16)));
}

template <bool kNibble>
inline U32x16 dot(U32x16 acc, U32x16 codes, U32x16 v) {
  return {dot_half<kNibble>(acc.low, codes.low, v.low),
          dot_half<kNibble>(acc.high, codes.high, v.high)};
}

inline U32x16 dot_words(U32x16 acc, U32x16 words, U32x16 x) {
  return {_mm256_add_epi32(acc.low, _mm256_madd_epi16(words.low, x.low)),
          _mm256_add_epi32(acc.high, _mm256_madd_epi16(words.high, x.high))};
}

}  // namespace
}  // namespace kvasir::backend::cpu
