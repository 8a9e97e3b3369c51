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
inline F32x16 load_f16(const std::uint16_t* p) {
  return lanes<F32x16>([&](int i) {
    const std::uint32_t h = p[i], sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 0x1fu,
                        mantissa = h & 0x3ffu;
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

// Eight 4-bit codes a lane, the lowest k lowest; signed codes are stored + 8.
using Nibbles = U32x16;
inline Nibbles load_nibbles(const void* p) { return load_u(p); }
template <bool kSigned, int J>
inline F32x16 nibble(const Nibbles& n) {
  return lanes<F32x16>([&](int i) {
    return static_cast<float>(static_cast<int>((n.at[i] >> (4 * J)) & 15u) - (kSigned ? 8 : 0));
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

// Sixteen rows of sixteen lanes → columns.
inline void transpose(const U32x16 (&r)[16], U32x16 (&out)[16]) {
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) out[j].at[i] = r[i].at[j];
  }
}

}  // namespace
}  // namespace kvasir::backend::cpu
