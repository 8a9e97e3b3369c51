// What linear.inc.h multiplies by: one element of K at a time, as f32 lanes.

namespace kvasir::backend::cpu {
namespace {

using Operand = F32x16;  // kUnit elements of K for 16 outputs
using XUnit = float;
constexpr std::uint32_t kUnit = 1;

inline const XUnit* x_of(const LinearJob& job) { return job.x; }
inline Operand load_operand(const float* p) { return load(p); }
inline void store_operand(float* p, Operand v) { store(p, v); }
inline Operand spread(XUnit x) { return set1(x); }
inline __attribute__((always_inline)) F32x16 multiply_add(Operand w, Operand x, F32x16 sum) {
  return fma(w, x, sum);
}

struct Pair {  // for the kPanel outputs
  Operand low, high;
};

// Decodes eight elements of K in ascending order: f.template operator()<k % 2>(k, Pair) for k = 0
// … 7.
template <CodeKind kKind, bool kSigned>
struct Decoder {
  // A panel's codes for one k.
  static constexpr std::size_t kBytesOfK = kPanel *
                                           (kKind == CodeKind::f32    ? 8
                                            : kKind == CodeKind::bf16 ? 4
                                            : kKind == CodeKind::byte ? 2
                                                                      : 1) /
                                           2;

  static constexpr int kRowsAcross = kKind == CodeKind::nibble ? kWideNibbleRows : kWideRows;
  static constexpr std::size_t kBytesOfHalf = kKind == CodeKind::byte ? 16 : 64;  // of what loads

  template <class F>
  inline __attribute__((always_inline)) void operator()(const std::uint8_t* codes, F&& f) const {
#pragma GCC unroll 8
    for (std::size_t line = 0; line < 8 * kBytesOfK; line += 64) ask_ahead(codes + line);
    if constexpr (kKind == CodeKind::nibble) {
      const Nibbles a = load_nibbles(codes), b = load_nibbles(codes + 64);
      f.template operator()<0>(0, Pair{nibble<kSigned, 0>(a), nibble<kSigned, 0>(b)});
      f.template operator()<1>(1, Pair{nibble<kSigned, 4>(a), nibble<kSigned, 4>(b)});
      f.template operator()<0>(2, Pair{nibble<kSigned, 1>(a), nibble<kSigned, 1>(b)});
      f.template operator()<1>(3, Pair{nibble<kSigned, 5>(a), nibble<kSigned, 5>(b)});
      f.template operator()<0>(4, Pair{nibble<kSigned, 2>(a), nibble<kSigned, 2>(b)});
      f.template operator()<1>(5, Pair{nibble<kSigned, 6>(a), nibble<kSigned, 6>(b)});
      f.template operator()<0>(6, Pair{nibble<kSigned, 3>(a), nibble<kSigned, 3>(b)});
      f.template operator()<1>(7, Pair{nibble<kSigned, 7>(a), nibble<kSigned, 7>(b)});
    } else {
#pragma GCC unroll 4
      for (std::uint32_t k = 0; k < 8; k += 2) decode_two(codes + k * kBytesOfK, k, f);
    }
  }

 private:
  template <class F>
  static inline __attribute__((always_inline)) void decode_two(const std::uint8_t* p,
                                                               std::uint32_t k,
                                                               F&& f) {
    if constexpr (kKind == CodeKind::bf16) {
      const U32x16 a = load_u(p), b = load_u(p + 64), mask = set1_u(0xffff0000u);
      f.template operator()<0>(k, Pair{from_bits(shift_left<16>(a)), from_bits(shift_left<16>(b))});
      f.template operator()<1>(k + 1, Pair{from_bits(and_u(a, mask)), from_bits(and_u(b, mask))});
    } else if constexpr (kKind == CodeKind::f32) {
      const float* const w = reinterpret_cast<const float*>(p);
      f.template operator()<0>(k, Pair{load(w), load(w + 16)});
      f.template operator()<1>(k + 1, Pair{load(w + 32), load(w + 48)});
    } else {
      f.template operator()<0>(k, Pair{byte(p), byte(p + 16)});
      f.template operator()<1>(k + 1, Pair{byte(p + 32), byte(p + 48)});
    }
  }
  static inline F32x16 byte(const std::uint8_t* p) {
    return kSigned ? load_bytes_signed(p) : load_bytes_unsigned(p);
  }
};

// H halves of a panel that decode_block made: already near, nothing to fetch ahead.
template <int H>
struct DecodedStep {
  static constexpr std::size_t kBytesOfK = kPanel * sizeof(float);
  template <class F>
  inline __attribute__((always_inline)) void operator()(const std::uint8_t* codes, F&& f) const {
    const float* const w = reinterpret_cast<const float*>(codes);
#pragma GCC unroll 4
    for (std::uint32_t k = 0; k < 8; k += 2) {
      f.template operator()<0>(k, at(w + k * kPanel));
      f.template operator()<1>(k + 1, at(w + k * kPanel + kPanel));
    }
  }

 private:
  static inline Pair at(const float* w) { return {load(w), H == 2 ? load(w + 16) : zero()}; }
};

}  // namespace
}  // namespace kvasir::backend::cpu
