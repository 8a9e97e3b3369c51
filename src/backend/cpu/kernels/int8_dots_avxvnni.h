// As in int8_dots_portable.h, one instruction for each half (AVX-VNNI, without AVX-512).
#pragma once

#include "backend/cpu/kernels/int8_words_avx2.h"

namespace kvasir::backend::cpu {
namespace {

constexpr int kInt8Rows = 2, kInt8Halves = 1;
constexpr std::uint32_t kInt8DirectRows = 2;

template <bool kNibble>
inline U32x16 dot(U32x16 acc, U32x16 codes, U32x16 v) {
  return {_mm256_dpbusd_avx_epi32(acc.low, codes.low, v.low),
          _mm256_dpbusd_avx_epi32(acc.high, codes.high, v.high)};
}

inline U32x16 dot_words(U32x16 acc, U32x16 words, U32x16 x) {
  return {_mm256_dpwssd_avx_epi32(acc.low, words.low, x.low),
          _mm256_dpwssd_avx_epi32(acc.high, words.high, x.high)};
}

}  // namespace
}  // namespace kvasir::backend::cpu
