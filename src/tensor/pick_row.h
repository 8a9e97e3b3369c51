// PickRow: how the token of one row of scores is picked where the scores are (SAMP-2, SAMP-12).
// Written by the engine, carried by contract's StepBatch, read by the op `pick`. Values only.
#pragma once

#include <cstdint>

namespace kvasir {

enum class PickKind : std::uint32_t {
  none,     // the row's scores are wanted themselves
  highest,  // ties → lowest id
  drawn     // argmax of (score − top) · scale + Gumbel number, ties → lowest id
};

struct PickRow {
  std::uint64_t seed = 0, position = 0;  // of a draw (SAMP-21)
  float scale = 0;                       // of a draw: 1 / temperature, finite
  PickKind kind = PickKind::none;
};
static_assert(sizeof(PickRow) == 24, "copied to devices as it is");

// Picked from a row with a NaN or an infinity (EXE-25), and in the place of rows of kind none.
inline constexpr std::uint32_t kNoToken = 0xFFFF'FFFF;

// Tokens that are fed before anyone has read them: the one picked for that row of the step before.
// Vocabularies are smaller than this bit.
inline constexpr std::uint32_t kPickedBit = 0x8000'0000;
constexpr std::uint32_t picked_from(std::uint32_t row) noexcept { return kPickedBit | row; }
constexpr bool is_picked(std::uint32_t token) noexcept { return (token & kPickedBit) != 0; }
constexpr std::uint32_t row_of_picked(std::uint32_t token) noexcept { return token & ~kPickedBit; }

}  // namespace kvasir
