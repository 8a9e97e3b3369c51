// Sixteen f32 lanes in two AVX2 registers, with FMA and F16C. The same operations as
// vec_portable.h, lane for lane and bit for bit. Only for translation units compiled for AVX2,
// inside their unnamed namespace.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace kvasir::backend::cpu {
namespace {

struct F32x16 {
  __m256 low, high;
};
struct U32x16 {
  __m256i low, high;
};

// As in vec_avx512.h, which says what these are; for sixteen registers.
constexpr int kDirectRows = 3, kWideRows = 1, kWideNibbleRows = 1, kBlockRows = 6, kBlockHalves = 1;

// All ones in the first n of 16 lanes.
inline U32x16 first_lanes(std::size_t n) {
  alignas(64) static constexpr std::int32_t kOnes[32] = {-1, -1, -1, -1, -1, -1, -1, -1,
                                                         -1, -1, -1, -1, -1, -1, -1, -1};
  const std::int32_t* const p = kOnes + 16 - n;
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
}

inline F32x16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F32x16 set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F32x16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline F32x16 load_n(const float* p, std::size_t n) {
  const U32x16 mask = first_lanes(n);
  return {_mm256_maskload_ps(p, mask.low), _mm256_maskload_ps(p + 8, mask.high)};
}
inline void store(float* p, F32x16 v) {
  _mm256_storeu_ps(p, v.low);
  _mm256_storeu_ps(p + 8, v.high);
}
inline void store_n(float* p, F32x16 v, std::size_t n) {
  const U32x16 mask = first_lanes(n);
  _mm256_maskstore_ps(p, mask.low, v.low);
  _mm256_maskstore_ps(p + 8, mask.high, v.high);
}

inline F32x16 add(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
inline F32x16 sub(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
inline F32x16 mul(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
inline F32x16 div(F32x16 a, F32x16 b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline F32x16 max(F32x16 a, F32x16 b) {  // b where either is NaN
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
inline F32x16 min(F32x16 a, F32x16 b) {  // b where either is NaN
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
inline F32x16 select_less(F32x16 a, F32x16 b, F32x16 yes, F32x16 no) {
  return {_mm256_blendv_ps(no.low, yes.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
          _mm256_blendv_ps(no.high, yes.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
}

inline U32x16 bits(F32x16 v) { return {_mm256_castps_si256(v.low), _mm256_castps_si256(v.high)}; }
inline F32x16 from_bits(U32x16 v) {
  return {_mm256_castsi256_ps(v.low), _mm256_castsi256_ps(v.high)};
}
inline U32x16 set1_u(std::uint32_t x) {
  const __m256i v = _mm256_set1_epi32(static_cast<int>(x));
  return {v, v};
}
inline U32x16 load_u(const void* p) {
  const auto* const at = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)};
}
inline U32x16 add_u(U32x16 a, U32x16 b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
inline U32x16 sub_u(U32x16 a, U32x16 b) {
  return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}
inline U32x16 and_u(U32x16 a, U32x16 b) {
  return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
}
inline U32x16 or_u(U32x16 a, U32x16 b) {
  return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}
template <int N>
inline U32x16 shift_left(U32x16 a) {
  return {_mm256_slli_epi32(a.low, N), _mm256_slli_epi32(a.high, N)};
}
template <int N>
inline U32x16 shift_right(U32x16 a) {
  return {_mm256_srli_epi32(a.low, N), _mm256_srli_epi32(a.high, N)};
}
template <int N>
inline U32x16 shift_right_signed(U32x16 a) {
  return {_mm256_srai_epi32(a.low, N), _mm256_srai_epi32(a.high, N)};
}
inline F32x16 to_f32(U32x16 v) {  // as signed
  return {_mm256_cvtepi32_ps(v.low), _mm256_cvtepi32_ps(v.high)};
}

// Eight halves or bytes at p, zero-extended.
inline __m256i widen_halves(const void* p) {
  return _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
inline __m256i widen_bytes(const void* p) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
}
// The low halves of the lanes side by side.
inline __m256i low_halves(U32x16 v) {
  const __m256i mask = _mm256_set1_epi32(0xffff);
  const __m256i packed =
      _mm256_packus_epi32(_mm256_and_si256(v.low, mask), _mm256_and_si256(v.high, mask));
  return _mm256_permute4x64_epi64(packed, 0xd8);
}

inline F32x16 load_bf16(const std::uint16_t* p) {
  return from_bits(shift_left<16>(U32x16{widen_halves(p), widen_halves(p + 8)}));
}
inline F32x16 load_bf16_n(const std::uint16_t* p, std::size_t n) {
  std::uint16_t halves[16] = {};
  __builtin_memcpy(halves, p, n * 2);
  return load_bf16(halves);
}
inline F32x16 load_f16(const std::uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline F32x16 load_f16_n(const std::uint16_t* p, std::size_t n) {
  std::uint16_t halves[16] = {};
  __builtin_memcpy(halves, p, n * 2);
  return load_f16(halves);
}
// Of the low halves of the lanes, whatever the high ones are.
inline F32x16 widen_f16(U32x16 v) {
  const __m256i halves = low_halves(v);
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
          _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
}
inline U32x16 load_bytes_u(const std::uint8_t* p) {  // zero-extended
  return {widen_bytes(p), widen_bytes(p + 8)};
}
inline F32x16 load_bytes_unsigned(const std::uint8_t* p) { return to_f32(load_bytes_u(p)); }
inline F32x16 load_bytes_signed(const std::uint8_t* p) {
  const auto widen = [](const std::uint8_t* at) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
  };
  return to_f32({widen(p), widen(p + 8)});
}
// Low halves of the lanes.
inline void store_u16_n(std::uint16_t* p, U32x16 v, std::size_t n) {
  const __m256i halves = low_halves(v);
  n == 16 ? _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), halves)
          : static_cast<void>(__builtin_memcpy(p, &halves, n * 2));
}

// Eight 4-bit codes a lane, at places 0 (lowest) to 7; signed codes are stored + 8. A code stays
// where it is, under the exponent that makes its lowest bit 1: 2^e + code, less 2^e (+ 8); those of
// the top three places are shifted down by three first.
struct Nibbles {
  U32x16 codes, shifted;
};
inline Nibbles load_nibbles(const void* p) {
  const U32x16 v = load_u(p);
  return {v, shift_right<12>(v)};
}
template <bool kSigned, int J>
inline F32x16 nibble(const Nibbles& n) {
  constexpr int kPlace = J < 5 ? J : J - 3, kExponent = 23 - 4 * kPlace;
  constexpr float kBase = static_cast<float>(1 << kExponent) + (kSigned ? 8.0f : 0.0f);
  const U32x16 code = and_u(J < 5 ? n.codes : n.shifted, set1_u(15u << (4 * kPlace)));
  const U32x16 placed = or_u(code, set1_u(std::uint32_t{127 + kExponent} << 23));
  return sub(from_bits(placed), set1(kBase));
}

// Codes of KV rows (kv_codes.inc.h).
constexpr bool kFusesKvCodes = false;  // unpacking first: sixteen registers hold too little

inline U32x16 shift_right_by(U32x16 a, U32x16 n) {
  return {_mm256_srlv_epi32(a.low, n.low), _mm256_srlv_epi32(a.high, n.high)};
}
inline U32x16 shift_left_by(U32x16 a, U32x16 n) {
  return {_mm256_sllv_epi32(a.low, n.low), _mm256_sllv_epi32(a.high, n.high)};
}
// Lane i: the dword at base + offsets[i] bytes.
inline U32x16 gather_u(const void* base, U32x16 offsets) {
  const auto* const at = static_cast<const int*>(base);
  return {_mm256_i32gather_epi32(at, offsets.low, 1), _mm256_i32gather_epi32(at, offsets.high, 1)};
}
// Lanes 0, 2, 4 … and 1, 3, 5 … of a followed by b.
inline U32x16 even_lanes(U32x16 a, U32x16 b) {
  const auto half = [](U32x16 v) {
    const __m256 both =
        _mm256_shuffle_ps(_mm256_castsi256_ps(v.low), _mm256_castsi256_ps(v.high), 0x88);
    return _mm256_permute4x64_epi64(_mm256_castps_si256(both), 0xd8);
  };
  return {half(a), half(b)};
}
inline U32x16 odd_lanes(U32x16 a, U32x16 b) {
  const auto half = [](U32x16 v) {
    const __m256 both =
        _mm256_shuffle_ps(_mm256_castsi256_ps(v.low), _mm256_castsi256_ps(v.high), 0xdd);
    return _mm256_permute4x64_epi64(_mm256_castps_si256(both), 0xd8);
  };
  return {half(a), half(b)};
}
// Lanes of a and b in turn: the first and the last eight of each.
inline U32x16 interleave(__m256i a, __m256i b) {
  const __m256i low = _mm256_unpacklo_epi32(a, b), high = _mm256_unpackhi_epi32(a, b);
  return {_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31)};
}
inline U32x16 interleave_low(U32x16 a, U32x16 b) { return interleave(a.low, b.low); }
inline U32x16 interleave_high(U32x16 a, U32x16 b) { return interleave(a.high, b.high); }

// A table entry for the low 4, 5 or 8 bits of each lane.
inline F32x16 lookup16(F32x16 table, U32x16 index) {
  const auto half = [&](__m256i at) {
    const __m256 bit3 = _mm256_castsi256_ps(_mm256_slli_epi32(at, 28));
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(table.low, at),
                            _mm256_permutevar8x32_ps(table.high, at), bit3);
  };
  return {half(index.low), half(index.high)};
}
inline F32x16 lookup32(F32x16 low, F32x16 high, U32x16 index) {
  const F32x16 a = lookup16(low, index), b = lookup16(high, index);
  const F32x16 bit4 = from_bits(shift_left<27>(index));
  return {_mm256_blendv_ps(a.low, b.low, bit4.low), _mm256_blendv_ps(a.high, b.high, bit4.high)};
}
inline F32x16 lookup256(const float* table, U32x16 index) {
  const U32x16 at = and_u(index, set1_u(255));
  return {_mm256_i32gather_ps(table, at.low, 4), _mm256_i32gather_ps(table, at.high, 4)};
}
// 256 values of bf16, and those of 32 codes side by side: a lane has the even one's in its low
// half.
struct WordTable {
  const float* table;
};
inline WordTable words_of(const float* table) { return {table}; }
inline U32x16 lookup_words(const WordTable& words, const std::uint8_t* codes) {
  const U32x16 pairs{widen_halves(codes), widen_halves(codes + 16)};
  const U32x16 even = bits(lookup256(words.table, pairs)),
               odd = bits(lookup256(words.table, shift_right<8>(pairs)));
  return or_u(shift_right<16>(even), and_u(odd, set1_u(0xffff0000u)));
}
// Byte k of each lane, zero-extended; `pick` from byte_pick(k).
inline U32x16 byte_pick(std::uint32_t k) { return set1_u(8 * k); }
inline U32x16 take_byte(U32x16 v, U32x16 pick) {
  return and_u(shift_right_by(v, pick), set1_u(255));
}
// Of 16 bytes at p: lane i gets two, those that its `pick` names (low byte, next byte, then
// 0x8080), shifted right.
inline U32x16 spread_codes(const std::uint8_t* p, U32x16 pick, U32x16 shift) {
  const __m256i bytes =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return shift_right_by(
      {_mm256_shuffle_epi8(bytes, pick.low), _mm256_shuffle_epi8(bytes, pick.high)}, shift);
}

inline U32x16 round_bits_to_bf16(U32x16 u, F32x16 v) {  // see bf16_bits
  const U32x16 rounded = add_u(add_u(u, set1_u(0x7fff)), and_u(shift_right<16>(u), set1_u(1)));
  const U32x16 quiet = or_u(u, set1_u(0x400000));
  const auto pick = [](__m256i yes, __m256i no, __m256 x) {
    return _mm256_blendv_epi8(no, yes, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
  };
  return {pick(quiet.low, rounded.low, v.low), pick(quiet.high, rounded.high, v.high)};
}

inline float sum_lanes(F32x16 v) {  // halves of 16, 8, 4, 2
  const __m256 a = _mm256_add_ps(v.low, v.high);
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
inline float max_lanes(F32x16 v) {  // same halves; second operand where either is NaN
  const __m256 a = _mm256_max_ps(v.low, v.high);
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

// Eight rows of eight lanes → columns.
inline void transpose8(const __m256i (&r)[8], __m256i (&out)[8]) {
  __m256i t[8], u[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    u[4 * i] = _mm256_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    u[4 * i + 1] = _mm256_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    u[4 * i + 2] = _mm256_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    u[4 * i + 3] = _mm256_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    out[i] = _mm256_permute2x128_si256(u[i], u[4 + i], 0x20);
    out[4 + i] = _mm256_permute2x128_si256(u[i], u[4 + i], 0x31);
  }
}
// Sixteen rows of sixteen lanes → columns.
inline void transpose(const U32x16 (&r)[16], U32x16 (&out)[16]) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    __m256i first[8], last[8], columns[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      first[i] = r[8 * half + i].low;
      last[i] = r[8 * half + i].high;
    }
    transpose8(first, columns);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) (half == 0 ? out[i].low : out[i].high) = columns[i];
    transpose8(last, columns);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) (half == 0 ? out[8 + i].low : out[8 + i].high) = columns[i];
  }
}

// e · 2^n, n whole and |n| < 192: in two steps, of which no first one overflows.
inline F32x16 times_power(F32x16 e, F32x16 n) {
  const U32x16 power = sub_u(bits(add(n, set1(12582912.0f))), set1_u(0x4b400000u));  // 1.5 · 2^23
  const U32x16 half = shift_right_signed<1>(power);
  const F32x16 first = from_bits(shift_left<23>(add_u(half, set1_u(127))));
  const F32x16 second = from_bits(shift_left<23>(add_u(sub_u(power, half), set1_u(127))));
  return mul(mul(e, first), second);
}

}  // namespace
}  // namespace kvasir::backend::cpu
