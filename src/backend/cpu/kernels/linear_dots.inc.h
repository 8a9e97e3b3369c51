// What linear.inc.h multiplies by where the CPU has products of bf16 pairs: two elements of K at
// once. vdpbf16ps adds the product of the high halves, then that of the low ones, each a fused
// multiply-add: a pair is two successive elements of one chain, the earlier one high. Of eight
// elements of K the pairs are (0, 2), (4, 6) of the even and (1, 3), (5, 7) of the odd chain.

namespace kvasir::backend::cpu {
namespace {

using Operand = U32x16;  // kUnit elements of K for 16 outputs
using XUnit = std::uint32_t;
constexpr std::uint32_t kUnit = 2;

inline const XUnit* x_of(const LinearJob& job) { return job.x_pairs; }
inline Operand load_operand(const float* p) { return load_u(p); }
inline void store_operand(float* p, Operand v) { store(p, from_bits(v)); }
inline Operand spread(XUnit x) { return set1_u(x); }
inline __attribute__((always_inline)) F32x16 multiply_add(Operand w, Operand x, F32x16 sum) {
  return _mm512_dpbf16_ps(sum, (__m512bh)w, (__m512bh)x);
}

struct Pair {  // for the kPanel outputs
  Operand low, high;
};

// Decodes eight elements of K: f.template operator()<parity>(unit, Pair) for units 0 … 3.
template <CodeKind kKind, bool kSigned>
struct Decoder {
  // A panel's codes for one k.
  static constexpr std::size_t kBytesOfK = kPanel *
                                           (kKind == CodeKind::bf16   ? 4
                                            : kKind == CodeKind::byte ? 2
                                                                      : 1) /
                                           2;
  static constexpr int kRowsAcross = 4;
  static constexpr std::size_t kBytesOfHalf = kKind == CodeKind::byte ? 16 : 64;  // of what loads

  template <class F>
  inline __attribute__((always_inline)) void operator()(const std::uint8_t* codes, F&& f) const {
#pragma GCC unroll 8
    for (std::size_t line = 0; line < 8 * kBytesOfK; line += 64) ask_ahead(codes + line);
    f.template operator()<0>(0, both<0>(codes));
    f.template operator()<0>(1, both<1>(codes));
    f.template operator()<1>(2, both<2>(codes));
    f.template operator()<1>(3, both<3>(codes));
  }

 private:
  template <int kPlace>
  static inline Pair both(const std::uint8_t* codes) {
    return {pair<kPlace>(codes), pair<kPlace>(codes + kBytesOfHalf)};
  }
  // Pairs at places (0, 2), (4, 6), (1, 3), (5, 7) of eight elements.
  template <int kPlace>
  static inline Operand pair(const std::uint8_t* codes) {
    constexpr std::size_t kFirst = kPlace < 2 ? 4 * kPlace : 4 * (kPlace - 2) + 1;
    if constexpr (kKind == CodeKind::nibble) {
      return nibbles<kFirst>(load_u(codes));
    } else if constexpr (kKind == CodeKind::bf16) {  // pairs of k, of which the odd is high
      const U32x16 first = load_u(codes + kFirst / 2 * kPanel * 4),
                   second = load_u(codes + (kFirst / 2 + 1) * kPanel * 4);
      constexpr __mmask32 kLow = 0x55555555;
      return kFirst % 2 == 0 ? _mm512_mask_blend_epi16(kLow, shift_left<16>(first), second)
                             : _mm512_mask_blend_epi16(kLow, first, shift_right<16>(second));
    } else {
      return or_u(byte(codes + kFirst * kPanel),
                  shift_right<16>(byte(codes + (kFirst + 2) * kPanel)));
    }
  }
  // Integers of 8 bits: exact in the upper half.
  static inline U32x16 byte(const std::uint8_t* p) {
    return bits(kSigned ? load_bytes_signed(p) : load_bytes_unsigned(p));
  }
  // Codes kFirst and kFirst + 2 of each lane as bf16 from a table of 16, twice over: bit 4 of an
  // index belongs to another code.
  template <int kFirst>
  static inline U32x16 nibbles(U32x16 codes) {
    constexpr long long kHigh = kFirst / 2 * 4 + kFirst % 2 * 16, kLow = kHigh + 4;  // bits
    constexpr long long kOfLane = kLow | kLow << 8 | kHigh << 16 | kHigh << 24;
    constexpr long long kOfTwo = kOfLane | (kOfLane + 0x20202020) << 32;
    const U32x16 index = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(kOfTwo), codes);
    return _mm512_permutexvar_epi16(index, table());
  }
  static inline __m512i table() {
    const F32x16 values =
        add(set1(kSigned ? -8.0f : 0.0f),
            to_f32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)));
    const __m256i half = _mm512_cvtepi32_epi16(shift_right<16>(bits(values)));
    return _mm512_inserti64x4(_mm512_castsi256_si512(half), half, 1);
  }
};

// H halves of a panel that decode_block made: already near, nothing to fetch ahead.
template <int H>
struct DecodedStep {
  static constexpr std::size_t kBytesOfK = kPanel * sizeof(float) / kUnit;
  template <class F>
  inline __attribute__((always_inline)) void operator()(const std::uint8_t* codes, F&& f) const {
    const float* const w = reinterpret_cast<const float*>(codes);
    f.template operator()<0>(0, at(w));
    f.template operator()<0>(1, at(w + kPanel));
    f.template operator()<1>(2, at(w + 2 * kPanel));
    f.template operator()<1>(3, at(w + 3 * kPanel));
  }

 private:
  static inline Pair at(const float* w) {
    return {load_operand(w), H == 2 ? load_operand(w + 16) : set1_u(0)};
  }
};

// Elements 8 i + (0, 4, 1, 5) high, (2, 6, 3, 7) low, of values of bf16.
inline U32x16 join_pair(U32x16 high, U32x16 low) { return or_u(high, shift_right<16>(low)); }

// Rows of x, values of bf16, as pairs: [n_rows, n] → [pair][width]; n a multiple of 16.
void pack_pairs(const float* rows,
                std::uint32_t n_rows,
                std::uint32_t n,
                std::uint32_t width,
                std::uint32_t* out) {
  constexpr std::uint32_t kFirst[] = {0, 4, 1, 5, 8, 12, 9, 13};
  for (std::uint32_t k = 0; k < n; k += 16, out += 8 * width) {
    if (width == 1) {
      const F32x16 x = load(rows + k);
      const auto pick = [&](std::uint32_t offset) {
        U32x16 at = _mm512_setr_epi32(0, 4, 1, 5, 8, 12, 9, 13, 0, 0, 0, 0, 0, 0, 0, 0);
        return bits(_mm512_permutexvar_ps(add_u(at, set1_u(offset)), x));
      };
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out),
                          _mm512_castsi512_si256(join_pair(pick(0), pick(2))));
      continue;
    }
    U32x16 in[16], columns[16];
    for (std::uint32_t r = 0; r < 16; ++r)
      in[r] = r < n_rows ? bits(load(rows + std::size_t{r} * n + k)) : set1_u(0);
    transpose(in, columns);
    for (std::uint32_t i = 0; i < 8; ++i) {
      const U32x16 pairs = join_pair(columns[kFirst[i]], columns[kFirst[i] + 2]);
      store_n(reinterpret_cast<float*>(out + i * width), from_bits(pairs), width);
    }
  }
}

}  // namespace
}  // namespace kvasir::backend::cpu
