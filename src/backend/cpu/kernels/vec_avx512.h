// Sixteen f32 lanes in one AVX-512 register. The same operations as vec_portable.h, lane for lane
// and bit for bit. Only for translation units compiled for AVX-512, inside their unnamed namespace.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace kvasir::backend::cpu {
namespace {

using F32x16 = __m512;
using U32x16 = __m512i;

// Sums that registers hold beside operands, as rows and halves of a panel. While a panel is
// decoded: kDirectRows with one half, kWideRows (of nibbles kWideNibbleRows, whose decoding takes
// registers too) with both, two chains each; once it is: kBlockRows with kBlockHalves, one chain.
constexpr int kDirectRows = 8, kWideRows = 4, kWideNibbleRows = 3, kBlockRows = 8, kBlockHalves = 2;

inline __mmask16 first_lanes(std::size_t n) { return static_cast<__mmask16>((1u << n) - 1u); }

inline F32x16 zero() { return _mm512_setzero_ps(); }
inline F32x16 set1(float x) { return _mm512_set1_ps(x); }
inline F32x16 load(const float* p) { return _mm512_loadu_ps(p); }
inline F32x16 load_n(const float* p, std::size_t n) {
  return _mm512_maskz_loadu_ps(first_lanes(n), p);
}
inline void store(float* p, F32x16 v) { _mm512_storeu_ps(p, v); }
inline void store_n(float* p, F32x16 v, std::size_t n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), v);
}

inline F32x16 add(F32x16 a, F32x16 b) { return _mm512_add_ps(a, b); }
inline F32x16 sub(F32x16 a, F32x16 b) { return _mm512_sub_ps(a, b); }
inline F32x16 mul(F32x16 a, F32x16 b) { return _mm512_mul_ps(a, b); }
inline F32x16 div(F32x16 a, F32x16 b) { return _mm512_div_ps(a, b); }
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return _mm512_fmadd_ps(a, b, c); }
inline F32x16 max(F32x16 a, F32x16 b) { return _mm512_max_ps(a, b); }  // b where either is NaN
inline F32x16 min(F32x16 a, F32x16 b) { return _mm512_min_ps(a, b); }  // b where either is NaN
inline F32x16 select_less(F32x16 a, F32x16 b, F32x16 yes, F32x16 no) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}

inline U32x16 bits(F32x16 v) { return _mm512_castps_si512(v); }
inline F32x16 from_bits(U32x16 v) { return _mm512_castsi512_ps(v); }
inline U32x16 set1_u(std::uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
inline U32x16 load_u(const void* p) { return _mm512_loadu_si512(p); }
inline U32x16 add_u(U32x16 a, U32x16 b) { return _mm512_add_epi32(a, b); }
inline U32x16 sub_u(U32x16 a, U32x16 b) { return _mm512_sub_epi32(a, b); }
inline U32x16 and_u(U32x16 a, U32x16 b) { return _mm512_and_si512(a, b); }
inline U32x16 or_u(U32x16 a, U32x16 b) { return _mm512_or_si512(a, b); }
template <int N>
inline U32x16 shift_left(U32x16 a) {
  return _mm512_slli_epi32(a, N);
}
template <int N>
inline U32x16 shift_right(U32x16 a) {
  return _mm512_srli_epi32(a, N);
}
template <int N>
inline U32x16 shift_right_signed(U32x16 a) {
  return _mm512_srai_epi32(a, N);
}

inline F32x16 load_bf16(const std::uint16_t* p) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return from_bits(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
inline F32x16 load_bf16_n(const std::uint16_t* p, std::size_t n) {
  return from_bits(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first_lanes(n), p)), 16));
}
inline F32x16 load_f16(const std::uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline F32x16 load_f16_n(const std::uint16_t* p, std::size_t n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
// Of the low halves of the lanes, whatever the high ones are.
inline F32x16 widen_f16(U32x16 v) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)); }
inline F32x16 load_bytes_unsigned(const std::uint8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline F32x16 load_bytes_signed(const std::uint8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
// Low halves of the lanes.
inline void store_u16_n(std::uint16_t* p, U32x16 v, std::size_t n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), _mm512_cvtepi32_epi16(v));
}

// Eight 4-bit codes a lane, at places 0 (lowest) to 7; signed codes are stored + 8. Nibbles 0 and 3
// are looked up in a table. The others stay where they are, under the exponent that makes their
// lowest bit 1: 2^e + code, less 2^e (+ 8). That spreads the work over more ports than shifting
// each.
struct Nibbles {
  U32x16 codes, shifted;
};
inline Nibbles load_nibbles(const void* p) {
  const U32x16 v = _mm512_loadu_si512(p);
  return {v, _mm512_srli_epi32(v, 12)};
}
template <bool kSigned, int J>
inline F32x16 nibble(const Nibbles& n) {
  constexpr int kPlace = J < 5 ? J : J - 3;
  if constexpr (J == 0 || J == 3) {
    const F32x16 table =
        kSigned ? _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7)
                : _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_permutexvar_ps(J == 0 ? n.codes : n.shifted, table);
  } else {
    constexpr int kExponent = 23 - 4 * kPlace;
    constexpr float kBase = static_cast<float>(1 << kExponent) + (kSigned ? 8.0f : 0.0f);
    const U32x16 placed = _mm512_ternarylogic_epi32(
        J < 5 ? n.codes : n.shifted, _mm512_set1_epi32(15 << (4 * kPlace)),
        _mm512_set1_epi32((127 + kExponent) << 23), 0xea);  // (a & b) | c
    return _mm512_sub_ps(_mm512_castsi512_ps(placed), _mm512_set1_ps(kBase));
  }
}

// Codes of KV rows (kv_codes.inc.h).
constexpr bool kFusesKvCodes = true;  // decoding within products is faster than unpacking first

inline U32x16 shift_right_by(U32x16 a, U32x16 n) { return _mm512_srlv_epi32(a, n); }
inline U32x16 shift_left_by(U32x16 a, U32x16 n) { return _mm512_sllv_epi32(a, n); }
inline F32x16 to_f32(U32x16 v) { return _mm512_cvtepi32_ps(v); }  // as signed
// Lane i: the dword at base + offsets[i] bytes.
inline U32x16 gather_u(const void* base, U32x16 offsets) {
  return _mm512_i32gather_epi32(offsets, base, 1);
}
// Lanes 0, 2, 4 … and 1, 3, 5 … of a followed by b.
inline U32x16 even_lanes(U32x16 a, U32x16 b) {
  const __m512i at = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  return _mm512_permutex2var_epi32(a, at, b);
}
inline U32x16 odd_lanes(U32x16 a, U32x16 b) {
  const __m512i at = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return _mm512_permutex2var_epi32(a, at, b);
}
// Lanes of a and b in turn: the first and the last eight of each.
inline U32x16 interleave_low(U32x16 a, U32x16 b) {
  const __m512i at = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  return _mm512_permutex2var_epi32(a, at, b);
}
inline U32x16 interleave_high(U32x16 a, U32x16 b) {
  const __m512i at =
      _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  return _mm512_permutex2var_epi32(a, at, b);
}
inline U32x16 load_bytes_u(const std::uint8_t* p) {  // zero-extended
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
// A table entry for the low 4, 5 or 8 bits of each lane.
inline F32x16 lookup16(F32x16 table, U32x16 index) { return _mm512_permutexvar_ps(index, table); }
inline F32x16 lookup32(F32x16 low, F32x16 high, U32x16 index) {
  return _mm512_permutex2var_ps(low, index, high);
}
inline F32x16 lookup256(const float* table, U32x16 index) {  // faster than a gather
  F32x16 of_64[4];
  const __mmask16 bit5 = _mm512_test_epi32_mask(index, _mm512_set1_epi32(32)),
                  bit6 = _mm512_test_epi32_mask(index, _mm512_set1_epi32(64)),
                  bit7 = _mm512_test_epi32_mask(index, _mm512_set1_epi32(128));
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const float* const part = table + 64 * i;
    of_64[i] = _mm512_mask_blend_ps(bit5, lookup32(load(part), load(part + 16), index),
                                    lookup32(load(part + 32), load(part + 48), index));
  }
  return _mm512_mask_blend_ps(bit7, _mm512_mask_blend_ps(bit6, of_64[0], of_64[1]),
                              _mm512_mask_blend_ps(bit6, of_64[2], of_64[3]));
}
// 256 values of bf16, and those of 32 codes side by side: a lane has the even one's in its low
// half.
struct WordTable {
  __m512i parts[8];
};
inline WordTable words_of(const float* table) {  // [256], each exact in bf16
  WordTable out;
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const auto half = [&](int at) {
      return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(load(table + at)), 16));
    };
    out.parts[i] = _mm512_inserti64x4(_mm512_castsi256_si512(half(32 * i)), half(32 * i + 16), 1);
  }
  return out;
}
inline U32x16 lookup_words(const WordTable& table, const std::uint8_t* codes) {
  const __m512i index =
      _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)));
  const __mmask32 bit6 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(64)),
                  bit7 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(128));
  __m512i of_64[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
    of_64[i] = _mm512_permutex2var_epi16(table.parts[2 * i], index, table.parts[2 * i + 1]);
  return _mm512_mask_blend_epi16(bit7, _mm512_mask_blend_epi16(bit6, of_64[0], of_64[1]),
                                 _mm512_mask_blend_epi16(bit6, of_64[2], of_64[3]));
}
// Byte k of each lane, zero-extended; `pick` from byte_pick(k).
inline U32x16 byte_pick(std::uint32_t k) {
  const __m512i first =
      _mm512_set4_epi32(static_cast<int>(0x8080800cu), static_cast<int>(0x80808008u),
                        static_cast<int>(0x80808004u), static_cast<int>(0x80808000u));
  return _mm512_add_epi32(first, _mm512_set1_epi32(static_cast<int>(k)));
}
inline U32x16 take_byte(U32x16 v, U32x16 pick) { return _mm512_shuffle_epi8(v, pick); }
// Of 16 bytes at p: lane i gets two, those that its `pick` names (low byte, next byte, then
// 0x8080), shifted right.
inline U32x16 spread_codes(const std::uint8_t* p, U32x16 pick, U32x16 shift) {
  const __m512i bytes =
      _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm512_srlv_epi32(_mm512_shuffle_epi8(bytes, pick), shift);
}

// For codes that products decode (kFusesKvCodes).
// Sixteen halves, zero-extended; the first argument only says for which lanes.
inline U32x16 load_halves_u(U32x16, const std::uint8_t* p) {
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
// Of each 16 bytes, four to a lane.
inline U32x16 pick_bytes(U32x16 v, U32x16 pick) { return _mm512_shuffle_epi8(v, pick); }
inline U32x16 pinned(U32x16 v) {
  asm("" : "+v"(v));
  return v;
}
// Lanes 0 … 7 of a, 8 … 15 of b.
inline F32x16 halves_of(F32x16 a, F32x16 b) { return _mm512_mask_mov_ps(a, 0xff00, b); }

inline U32x16 round_bits_to_bf16(U32x16 u, F32x16 v) {  // see bf16_bits
  const U32x16 rounded =
      _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)),
                       _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1)));
  return _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), u,
                              _mm512_set1_epi32(0x400000));
}

inline float sum_lanes(F32x16 v) {  // halves of 16, 8, 4, 2
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
inline float max_lanes(F32x16 v) {  // same halves; second operand where either is NaN
  const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

inline float fma1(float a, float b, float c) {
  return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c)));
}
inline float sqrt1(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }
// Forced inline: GCC drops calls of a function that does nothing but prefetch.
inline __attribute__((always_inline)) void prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }
inline __attribute__((always_inline)) void prefetch_beyond_l1(const void* p) {  // into L2
  __builtin_prefetch(p, 0, 2);
}

// Sixteen rows of sixteen lanes → columns.
inline void transpose(const U32x16 (&r)[16], U32x16 (&out)[16]) {
  __m512i t[16], u[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    u[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    u[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    u[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    u[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i a = _mm512_shuffle_i32x4(u[i], u[4 + i], 0x88),
                  b = _mm512_shuffle_i32x4(u[i], u[4 + i], 0xdd);
    const __m512i c = _mm512_shuffle_i32x4(u[8 + i], u[12 + i], 0x88),
                  d = _mm512_shuffle_i32x4(u[8 + i], u[12 + i], 0xdd);
    out[i] = _mm512_shuffle_i32x4(a, c, 0x88);
    out[8 + i] = _mm512_shuffle_i32x4(a, c, 0xdd);
    out[4 + i] = _mm512_shuffle_i32x4(b, d, 0x88);
    out[12 + i] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
}

// e · 2^n, n whole and |n| < 192.
inline F32x16 times_power(F32x16 e, F32x16 n) { return _mm512_scalef_ps(e, n); }

}  // namespace
}  // namespace kvasir::backend::cpu
