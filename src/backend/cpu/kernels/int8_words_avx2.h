// As in int8_words_avx512.h.
#pragma once

#include "backend/cpu/kernels/vec_avx2.h"

namespace kvasir::backend::cpu {
namespace {

constexpr int kWordRows = 1;

// Of the panel's first 16 outputs 0 … 3, 8 … 11, then the others; and of its second 16.
struct Words {
  U32x16 first, second;
};
inline U32x16 words_of_16(const std::uint8_t* even_codes, const std::uint8_t* odd_codes) {
  const auto widen = [](const std::uint8_t* p) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  };
  const __m256i even = widen(even_codes), odd = widen(odd_codes);
  return {_mm256_unpacklo_epi16(even, odd), _mm256_unpackhi_epi16(even, odd)};
}
inline Words load_words(const std::uint8_t* codes) {
  return {words_of_16(codes, codes + kPanel), words_of_16(codes + 16, codes + kPanel + 16)};
}

template <int kHalf>
inline U32x16 in_order(U32x16 first, U32x16 second) {
  const U32x16 v = kHalf == 0 ? first : second;
  return {_mm256_permute2x128_si256(v.low, v.high, 0x20),
          _mm256_permute2x128_si256(v.low, v.high, 0x31)};
}

inline __m256i narrow(U32x16 v) {
  return _mm256_permute4x64_epi64(_mm256_packs_epi32(v.low, v.high), 0xd8);
}

}  // namespace
}  // namespace kvasir::backend::cpu
