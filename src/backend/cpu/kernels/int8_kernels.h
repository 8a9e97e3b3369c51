// The border to the kernels of activations as integers (docs/numerics.md), as kernel_table.h is to
// the others: compiled once an instruction set from the same source. Plain data and function
// pointers only.
#pragma once

#include "backend/cpu/kernels/kernel_table.h"

namespace kvasir::backend::cpu {

struct Int8Job : LinearJob {  // x and x_tiles are not used
  // Activations as Int8Kernels::quantize left them.
  const std::uint32_t* v = nullptr;
  const float* factors = nullptr;
};

// v: dwords of four codes each, for up to direct_rows rows [dword][row], else
// [row / kRowAlign][dword][row % kRowAlign] (tiles: [row / kRowAlign][step of K][row % kRowAlign]
// [the step's bytes]), a block of rows padded to whole int8_row_bytes a row. Dwords hold elements
// of K as the weight's do: of bytes four in a row, of nibbles 0, 4, 1, 5 and 2, 6, 3, 7 of each
// eight. factors: [row block][group][kFactors][rows of a block]: s_x; -offset · Σ v, an integer,
// where offset is what stored codes have too much; s_x · Σ v. On a grid: s_x is its unit, Σ v of
// whole integers; for nibbles of each dword of a row the first digits', then the second ones', for
// bytes dwords of two whole ones.
constexpr std::uint32_t kFactors = 3;
constexpr std::uint32_t kNibbleOffset = 8, kByteOffset = 128;  // of signed codes

// Bytes of a row of v.
constexpr std::size_t int8_row_bytes(const PackedLayout& w) {
  return (std::size_t{w.group} * w.n_groups + 63) / 64 * 64;
}

struct Int8Kernels {
  const char* name;
  // Rows up to which they lie side by side; more are in blocks of kRowAlign.
  std::uint32_t direct_rows;
  // n_rows rows of f32, at most `width`, into a block of v and of factors, `width` rows each: all
  // of them where there are at most direct_rows, else kRowAlign. scratch: kRowAlign rows of v; on 8
  // bytes.
  void (*quantize)(const PackedLayout&,
                   const float* x,
                   std::size_t x_stride,
                   std::uint32_t n_rows,
                   std::uint32_t width,
                   std::uint8_t* scratch,
                   std::uint32_t* v,
                   float* factors);
  // As KernelTable::linear.
  void (*linear)(const Int8Job&,
                 std::uint32_t panel_begin,
                 std::uint32_t panel_end,
                 std::uint32_t row_begin,
                 std::uint32_t row_end,
                 float* scratch);
  // Faster from so many rows on, with a layout of its own; null: none is.
  const Int8Kernels* for_many = nullptr;
  std::uint32_t fewest_many = 0;
  std::uint32_t digits = 1;  // bytes of an activation
  // On a grid: rows up to which this is faster than lanes of f32, of nibbles and of bytes.
  std::uint32_t most_rows = 0, most_rows_of_bytes = 0;
};

extern const Int8Kernels kPortableInt8Kernels;
#if defined(__x86_64__)
extern const Int8Kernels kAvx2Int8Kernels;
extern const Int8Kernels kAvxVnniInt8Kernels;  // AVX2 with AVX-VNNI
extern const Int8Kernels kAvx512Int8Kernels;
extern const Int8Kernels kVnniInt8Kernels;  // AVX-512 with VNNI
// Likewise, of the exact mode.
extern const Int8Kernels kAvx2GridKernels, kAvxVnniGridKernels, kAvx512GridKernels,
    kVnniGridKernels;
extern const Int8Kernels kAmxInt8Kernels;  // tiles of bytes, and that
extern const Int8Kernels kEmulatedAmxInt8Kernels;
#endif

}  // namespace kvasir::backend::cpu
