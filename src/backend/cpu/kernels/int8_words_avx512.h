// Codes of 8 bits, widened to 16, two of K side by side for each output; and 16 integers narrowed.
#pragma once

#include "backend/cpu/kernels/vec_avx512.h"

namespace kvasir::backend::cpu {
namespace {

constexpr int kWordRows = 6;  // whose sums registers hold

// Of the panel's outputs 0 … 3, 8 … 11, 16 … 19, 24 … 27, and of the others.
struct Words {
  U32x16 first, second;
};
inline Words load_words(const std::uint8_t* codes) {  // [2 k][output]
  const auto* const at = reinterpret_cast<const __m256i*>(codes);
  const __m512i even = _mm512_cvtepi8_epi16(_mm256_loadu_si256(at)),
                odd = _mm512_cvtepi8_epi16(_mm256_loadu_si256(at + 1));
  return {_mm512_unpacklo_epi16(even, odd), _mm512_unpackhi_epi16(even, odd)};
}

// What became of them, for outputs [16 half, 16 half + 16).
template <int kHalf>
inline U32x16 in_order(U32x16 first, U32x16 second) {
  const __m512i order =
      _mm512_add_epi32(_mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23),
                       _mm512_set1_epi32(8 * kHalf));
  return _mm512_permutex2var_epi32(first, order, second);
}

inline __m256i narrow(U32x16 v) { return _mm512_cvtepi32_epi16(v); }  // of 16 bits

}  // namespace
}  // namespace kvasir::backend::cpu
