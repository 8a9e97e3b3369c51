// Sixteen f32 lanes in plain C++. The compiler may use whatever vectors its target has: every
// operation is IEEE and written out, so all targets give the same bits. Only for kernel translation
// units, inside their unnamed namespace.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvasir::backend::cpu {
namespace {

struct F32x16 {
  float at[16];
};
struct U32x16 {
  std::uint32_t at[16];
};

// As in vec_avx512.h, which says what these are.
constexpr int kDirectRows = 2, kWideRows = 2, kWideNibbleRows = 2, kBlockRows = 4, kBlockHalves = 2;

template <class V, class F>
inline V lanes(F f) {
  V v;
  for (int i = 0; i < 16; ++i) v.at[i] = f(i);
  return v;
}

inline F32x16 zero() {
  return lanes<F32x16>([](int) { return 0.0f; });
}
inline F32x16 set1(float x) {
  return lanes<F32x16>([=](int) { return x; });
}
inline F32x16 load(const float* p) {
  F32x16 v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}
inline F32x16 load_n(const float* p, std::size_t n) {
  F32x16 v{};
  __builtin_memcpy(&v, p, n * sizeof(float));
  return v;
}
inline void store(float* p, const F32x16& v) { __builtin_memcpy(p, &v, sizeof(v)); }
inline void store_n(float* p, const F32x16& v, std::size_t n) {
  __builtin_memcpy(p, &v, n * sizeof(float));
}

inline float fma1(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float sqrt1(float x) { return __builtin_sqrtf(x); }
inline F32x16 add(const F32x16& a, const F32x16& b) {
  return lanes<F32x16>([&](int i) { return a.at[i] + b.at[i]; });
}
inline F32x16 sub(const F32x16& a, const F32x16& b) {
  return lanes<F32x16>([&](int i) { return a.at[i] - b.at[i]; });
}
inline F32x16 mul(const F32x16& a, const F32x16& b) {
  return lanes<F32x16>([&](int i) { return a.at[i] * b.at[i]; });
}
inline F32x16 div(const F32x16& a, const F32x16& b) {
  return lanes<F32x16>([&](int i) { return a.at[i] / b.at[i]; });
}
inline F32x16 fma(const F32x16& a, const F32x16& b, const F32x16& c) {
  return lanes<F32x16>([&](int i) { return fma1(a.at[i], b.at[i], c.at[i]); });
}
inline float max1(float a, float b) { return a > b ? a : b; }  // b where either is NaN
inline F32x16 max(const F32x16& a, const F32x16& b) {
  return lanes<F32x16>([&](int i) { return max1(a.at[i], b.at[i]); });
}
inline F32x16 min(const F32x16& a, const F32x16& b) {
  return lanes<F32x16>([&](int i) { return a.at[i] < b.at[i] ? a.at[i] : b.at[i]; });
}
inline F32x16 select_less(const F32x16& a, const F32x16& b, const F32x16& yes, const F32x16& no) {
  return lanes<F32x16>([&](int i) { return a.at[i] < b.at[i] ? yes.at[i] : no.at[i]; });
}

inline U32x16 bits(const F32x16& v) {
  U32x16 u;
  __builtin_memcpy(&u, &v, sizeof(u));
  return u;
}
inline F32x16 from_bits(const U32x16& u) {
  F32x16 v;
  __builtin_memcpy(&v, &u, sizeof(v));
  return v;
}
inline U32x16 set1_u(std::uint32_t x) {
  return lanes<U32x16>([=](int) { return x; });
}
inline U32x16 load_u(const void* p) {
  U32x16 v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}
inline U32x16 add_u(const U32x16& a, const U32x16& b) {
  return lanes<U32x16>([&](int i) { return a.at[i] + b.at[i]; });
}
inline U32x16 sub_u(const U32x16& a, const U32x16& b) {
  return lanes<U32x16>([&](int i) { return a.at[i] - b.at[i]; });
}
inline U32x16 and_u(const U32x16& a, const U32x16& b) {
  return lanes<U32x16>([&](int i) { return a.at[i] & b.at[i]; });
}
inline U32x16 or_u(const U32x16& a, const U32x16& b) {
  return lanes<U32x16>([&](int i) { return a.at[i] | b.at[i]; });
}
template <int N>
inline U32x16 shift_left(const U32x16& a) {
  return lanes<U32x16>([&](int i) { return a.at[i] << N; });
}
template <int N>
inline U32x16 shift_right(const U32x16& a) {
  return lanes<U32x16>([&](int i) { return a.at[i] >> N; });
}
template <int N>
inline U32x16 shift_right_signed(const U32x16& a) {
  return lanes<U32x16>(
      [&](int i) { return static_cast<std::uint32_t>(static_cast<std::int32_t>(a.at[i]) >> N); });
}

inline F32x16 load_bf16_n(const std::uint16_t* p, std::size_t n) {
  std::uint16_t h[16] = {};
  __builtin_memcpy(h, p, n * 2);
  return from_bits(lanes<U32x16>([&](int i) { return std::uint32_t{h[i]} << 16; }));
}
inline F32x16 load_bf16(const std::uint16_t* p) { return load_bf16_n(p, 16); }
// Of the low halves of the lanes, whatever the high ones are.
inline F32x16 widen_f16(const U32x16& v) {
  return lanes<F32x16>([&](int i) {
    const std::uint32_t h = v.at[i] & 0xffffu, sign = (h & 0x8000u) << 16,
                        exponent = (h >> 10) & 0x1fu, mantissa = h & 0x3ffu;
    std::uint32_t u =
        exponent == 0x1f ? 0x7f800000u | mantissa << 13 : (exponent + 112u) << 23 | mantissa << 13;
    if (exponent == 0) {
      const float tiny = static_cast<float>(mantissa) * 0x1p-24f;
      __builtin_memcpy(&u, &tiny, sizeof(u));
    }
    u |= sign;
    float value;
    __builtin_memcpy(&value, &u, sizeof(value));
    return value;
  });
}
inline F32x16 load_f16_n(const std::uint16_t* p, std::size_t n) {
  std::uint16_t h[16] = {};
  __builtin_memcpy(h, p, n * 2);
  return widen_f16(lanes<U32x16>([&](int i) { return std::uint32_t{h[i]}; }));
}
inline F32x16 load_f16(const std::uint16_t* p) { return load_f16_n(p, 16); }
inline F32x16 load_bytes_unsigned(const std::uint8_t* p) {
  return lanes<F32x16>([&](int i) { return static_cast<float>(p[i]); });
}
inline F32x16 load_bytes_signed(const std::uint8_t* p) {
  return lanes<F32x16>([&](int i) { return static_cast<float>(static_cast<std::int8_t>(p[i])); });
}
// Low halves of the lanes.
inline void store_u16_n(std::uint16_t* p, const U32x16& v, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) p[i] = static_cast<std::uint16_t>(v.at[i]);
}

// Eight 4-bit codes a lane, at places 0 (lowest) to 7; signed codes are stored + 8.
using Nibbles = U32x16;
inline Nibbles load_nibbles(const void* p) { return load_u(p); }
template <bool kSigned, int J>
inline F32x16 nibble(const Nibbles& n) {
  return lanes<F32x16>([&](int i) {
    return static_cast<float>(static_cast<int>((n.at[i] >> (4 * J)) & 15u) - (kSigned ? 8 : 0));
  });
}

// Codes of KV rows (kv_codes.inc.h).
constexpr bool kFusesKvCodes = false;  // unpacking first is as fast and compiles sooner

inline U32x16 shift_right_by(const U32x16& a, const U32x16& n) {
  return lanes<U32x16>([&](int i) { return n.at[i] < 32 ? a.at[i] >> n.at[i] : 0u; });
}
inline U32x16 shift_left_by(const U32x16& a, const U32x16& n) {
  return lanes<U32x16>([&](int i) { return n.at[i] < 32 ? a.at[i] << n.at[i] : 0u; });
}
inline F32x16 to_f32(const U32x16& v) {  // as signed
  return lanes<F32x16>(
      [&](int i) { return static_cast<float>(static_cast<std::int32_t>(v.at[i])); });
}
// Lane i: the dword at base + offsets[i] bytes.
inline U32x16 gather_u(const void* base, const U32x16& offsets) {
  return lanes<U32x16>([&](int i) {
    std::uint32_t u;
    __builtin_memcpy(&u, static_cast<const std::uint8_t*>(base) + offsets.at[i], 4);
    return u;
  });
}
// Lanes 0, 2, 4 … and 1, 3, 5 … of a followed by b.
inline U32x16 every_other(const U32x16& a, const U32x16& b, int first) {
  U32x16 both[2] = {a, b};
  std::uint32_t at[32];
  __builtin_memcpy(at, both, sizeof(at));
  return lanes<U32x16>([&](int i) { return at[2 * i + first]; });
}
inline U32x16 even_lanes(const U32x16& a, const U32x16& b) { return every_other(a, b, 0); }
inline U32x16 odd_lanes(const U32x16& a, const U32x16& b) { return every_other(a, b, 1); }
// Lanes of a and b in turn: the first and the last eight of each.
inline U32x16 interleave_low(const U32x16& a, const U32x16& b) {
  return lanes<U32x16>([&](int i) { return i % 2 == 0 ? a.at[i / 2] : b.at[i / 2]; });
}
inline U32x16 interleave_high(const U32x16& a, const U32x16& b) {
  return lanes<U32x16>([&](int i) { return i % 2 == 0 ? a.at[8 + i / 2] : b.at[8 + i / 2]; });
}
inline U32x16 load_bytes_u(const std::uint8_t* p) {  // zero-extended
  return lanes<U32x16>([&](int i) { return std::uint32_t{p[i]}; });
}
// A table entry for the low 4, 5 or 8 bits of each lane.
inline F32x16 lookup16(const F32x16& table, const U32x16& index) {
  return lanes<F32x16>([&](int i) { return table.at[index.at[i] & 15u]; });
}
inline F32x16 lookup32(const F32x16& low, const F32x16& high, const U32x16& index) {
  return lanes<F32x16>([&](int i) {
    const std::uint32_t at = index.at[i] & 31u;
    return at < 16 ? low.at[at] : high.at[at - 16];
  });
}
inline F32x16 lookup256(const float* table, const U32x16& index) {
  return lanes<F32x16>([&](int i) { return table[index.at[i] & 0xffu]; });
}
// 256 values of bf16, and those of 32 codes side by side: a lane has the even one's in its low
// half.
struct WordTable {
  const float* table;
};
inline WordTable words_of(const float* table) { return {table}; }
inline U32x16 lookup_words(const WordTable& words, const std::uint8_t* codes) {
  const auto half = [&](int i) {
    std::uint32_t bits = 0;
    __builtin_memcpy(&bits, words.table + codes[i], sizeof bits);
    return bits >> 16;
  };
  return lanes<U32x16>([&](int i) { return half(2 * i) | half(2 * i + 1) << 16; });
}
// Byte k of each lane, zero-extended; `pick` from byte_pick(k).
inline U32x16 byte_pick(std::uint32_t k) { return set1_u(8 * k); }
inline U32x16 take_byte(const U32x16& v, const U32x16& pick) {
  return lanes<U32x16>([&](int i) { return v.at[i] >> pick.at[i] & 0xffu; });
}
// Of 16 bytes at p: lane i gets two, those that its `pick` names (low byte, next byte, then
// 0x8080), shifted right.
inline U32x16 spread_codes(const std::uint8_t* p, const U32x16& pick, const U32x16& shift) {
  return lanes<U32x16>([&](int i) {
    const std::uint32_t low = p[pick.at[i] & 15u], high = p[pick.at[i] >> 8 & 15u];
    return (low | high << 8) >> shift.at[i];
  });
}

inline U32x16 round_bits_to_bf16(const U32x16& u, const F32x16& v) {  // see bf16_bits
  return lanes<U32x16>([&](int i) {
    const std::uint32_t rounded = u.at[i] + 0x7fffu + ((u.at[i] >> 16) & 1u);
    return v.at[i] == v.at[i] ? rounded : u.at[i] | 0x400000u;
  });
}

inline float sum_lanes(F32x16 v) {  // halves of 16, 8, 4, 2
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) v.at[i] += v.at[i + half];
  }
  return v.at[0];
}
inline float max_lanes(F32x16 v) {  // same halves; second operand where either is NaN
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) v.at[i] = max1(v.at[i], v.at[i + half]);
  }
  return v.at[0];
}

inline __attribute__((always_inline)) void prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }
inline __attribute__((always_inline)) void prefetch_beyond_l1(const void* p) {  // into L2
  __builtin_prefetch(p, 0, 2);
}

// Sixteen rows of sixteen lanes → columns.
inline void transpose(const U32x16 (&r)[16], U32x16 (&out)[16]) {
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) out[j].at[i] = r[i].at[j];
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
