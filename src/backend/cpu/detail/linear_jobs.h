// What the ops that multiply share: rows of x made ready for a product, and products as jobs for
// the threads.
#pragma once

#include <cstdint>
#include <span>

#include "backend/cpu/detail/cpu_ops.h"

namespace kvasir::backend::cpu {

// In which form a product wants its rows (LinearJob).
enum class InputForm : std::uint8_t { floats, pairs, tiles };

InputForm form_for(const CpuDevice&, const CpuMatrix&, std::uint32_t n_rows) noexcept;

struct LinearInput {   // as LinearJob's
  float* x = nullptr;  // or
  std::uint32_t* pairs = nullptr;
  std::uint16_t* tiles = nullptr;
  float* group_sums = nullptr;

  float* sums_of(const CpuMatrix& m, std::size_t row) const noexcept {
    return group_sums ? group_sums + row * m.layout.n_groups : nullptr;
  }
};

// Room for n_rows rows, in memory that lasts to the next call with the same scratches.
LinearInput make_room(
    CpuDevice&, const CpuMatrix&, std::uint32_t n_rows, Scratch& x, Scratch& sums);

// Rows of x made ready for m.
LinearInput prepare(CpuDevice&, const CpuMatrix& m, ConstMatView x);

// Whether x made ready for one serves the other.
bool take_the_same_input(const CpuDevice&,
                         const CpuMatrix& a,
                         const CpuMatrix& b,
                         std::uint32_t n_rows) noexcept;

LinearJob job_of(const CpuMatrix&, const LinearInput&, const float* bias, MatView out);

// Rows, at most, that a product takes at once: as many as share unpacked codes or, of tiles, as
// leave room in L2 for the rest.
std::uint32_t rows_together(const PackedLayout&, bool are_tiles) noexcept;

// Jobs of the same rows, in one fork.
void multiply(CpuDevice&, std::span<const LinearJob>);

}  // namespace kvasir::backend::cpu
