// The tile registers of AMX as a type: eight of at most 16 rows of 64 bytes. Two implementations,
// the hardware's and one in AVX-512 that gives its bits, so that kernels written for tiles are
// tested on machines without them. Only for kernels_amx.cpp.
#pragma once

#include "backend/cpu/kernels/vec_avx512.h"

namespace kvasir::backend::cpu {
namespace {

struct alignas(64) TileConfig {  // the operand of ldtilecfg
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  void set(int tile, std::uint32_t n_rows, std::uint32_t n_bytes) {
    rows[tile] = static_cast<std::uint8_t>(n_rows);
    row_bytes[tile] = static_cast<std::uint16_t>(n_bytes);
  }
};
static_assert(sizeof(TileConfig) == 64);

// Written out because GCC 12's intrinsics lack the memory clobbers and an operand for the whole
// configuration.
class HardwareTiles {
 public:
  explicit HardwareTiles(const TileConfig& config) {
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
  }
  ~HardwareTiles() { __asm__ volatile("tilerelease" : : : "memory"); }
  HardwareTiles(const HardwareTiles&) = delete;
  HardwareTiles& operator=(const HardwareTiles&) = delete;

  // Also for a tile whose use has ended: while the core's other thread is busy, tiles are renamed
  // only as far as others hold nothing.
  template <int T>
  inline __attribute__((always_inline)) void clear() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(T));
  }
  template <int T>
  inline __attribute__((always_inline)) void load(const void* p, std::size_t stride_bytes) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2"
                     :
                     : "r"(p), "r"(stride_bytes), "i"(T)
                     : "memory");
  }
  // What is used once should not push out of L1 what is used again.
  template <int T>
  inline __attribute__((always_inline)) void load_once(const void* p, std::size_t stride_bytes) {
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm%c2"
                     :
                     : "r"(p), "r"(stride_bytes), "i"(T)
                     : "memory");
  }
  template <int T>
  inline __attribute__((always_inline)) void store(void* p, std::size_t stride_bytes) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)"
                     :
                     : "r"(p), "r"(stride_bytes), "i"(T)
                     : "memory");
  }
  // C += A · B, products of bf16 pairs: A [rows, pairs], B [pairs, columns], C f32.
  template <int C, int A, int B>
  inline __attribute__((always_inline)) void multiply_bf16() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
  }
};

class EmulatedTiles {
 public:
  explicit EmulatedTiles(const TileConfig& config) : config_(config) {}

  template <int T>
  void clear() {
    for (auto& row : tiles_[T]) store_row(row, _mm512_setzero_si512());
  }
  template <int T>
  void load(const void* p, std::size_t stride_bytes) {
    clear<T>();
    for (std::size_t r = 0; r < config_.rows[T]; ++r)
      __builtin_memcpy(tiles_[T][r], static_cast<const std::uint8_t*>(p) + r * stride_bytes,
                       config_.row_bytes[T]);
  }
  template <int T>
  void load_once(const void* p, std::size_t stride_bytes) {
    load<T>(p, stride_bytes);
  }
  template <int T>
  void store(void* p, std::size_t stride_bytes) const {
    for (std::size_t r = 0; r < config_.rows[T]; ++r)
      __builtin_memcpy(static_cast<std::uint8_t*>(p) + r * stride_bytes, tiles_[T][r],
                       config_.row_bytes[T]);
  }
  // Per row: one chain of fused multiply-adds over the even and one over the odd elements, from
  // zero, then their sum onto C (docs/numerics.md).
  template <int C, int A, int B>
  void multiply_bf16() {
    const U32x16 mask = set1_u(0xffff0000u);
    for (std::size_t r = 0; r < config_.rows[C]; ++r) {
      F32x16 even = zero(), odd = zero();
      for (std::size_t pair = 0; pair < config_.row_bytes[A] / 4u; ++pair) {
        std::uint32_t a = 0;
        __builtin_memcpy(&a, tiles_[A][r] + 4 * pair, 4);
        const U32x16 both = set1_u(a), b = load_u(tiles_[B][pair]);
        even = fma(from_bits(shift_left<16>(b)), from_bits(shift_left<16>(both)), even);
        odd = fma(from_bits(and_u(b, mask)), from_bits(and_u(both, mask)), odd);
      }
      const F32x16 sum = add(from_bits(load_u(tiles_[C][r])), add(even, odd));
      store_row(tiles_[C][r], bits(sum));
    }
  }

 private:
  static void store_row(std::uint8_t* to, __m512i row) { _mm512_storeu_si512(to, row); }

  TileConfig config_;
  alignas(64) std::uint8_t tiles_[8][16][64] = {};  // as ldtilecfg leaves them
};

}  // namespace
}  // namespace kvasir::backend::cpu
