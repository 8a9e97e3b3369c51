// Rows of few tokens: partial results of segments, by many blocks a row, and what they come to.
#pragma once

#include <algorithm>
#include <span>

#include "backend/cuda/detail/kv_args.h"
#include "backend/cuda/device/attention.h"

namespace kvasir::backend::cuda {

constexpr std::size_t kPartBytes = std::size_t{256} << 20;  // rows beyond wait their turn
// CudaDevice::workspace: partial results, their maxima and sums; counters, which launches leave as
// they find them: zero.
enum AttentionSlot : int { kPartOut = 0, kPartMl = 1, kArrivals = 10 };
constexpr float kLog2OfE = 1.44269504f;

// The most new tokens of any row of few, of any other; 0: there is none. Powers of two.
struct NewTokens {
  std::uint32_t few = 0, many = 0;
};
inline NewTokens count_new(std::span<const KvRowView> rows) noexcept {
  NewTokens out;
  for (const KvRowView& row : rows) {
    std::uint32_t& most = row.n_new <= kFewTokens ? out.few : out.many;
    most = std::max(most, row.n_new);
  }
  return {out.few == 0 ? 0 : bucket_of(out.few), out.many == 0 ? 0 : bucket_of(out.many)};
}

// How many blocks share the segments of each of n_walks: what takes least time if the GPU holds
// n_places blocks, and a block's start takes as long as a third of a segment.
inline std::uint32_t splits_of(std::uint32_t n_places,
                               std::uint32_t n_walks,
                               std::uint32_t n_segments) noexcept {
  const auto time_of = [&](std::uint32_t n_splits) {
    const std::uint32_t n_rounds = (n_walks * n_splits + n_places - 1) / n_places;
    return n_rounds * (3 * ((n_segments + n_splits - 1) / n_splits) + 1);
  };
  std::uint32_t best = 1;
  for (std::uint32_t n = 2; n <= n_segments; n = n < 8 ? n + 1 : n + n / 8)
    if (time_of(n) < time_of(best)) best = n;
  return best;
}

// Blocks of a row for each share of its segments, and how many blocks the GPU holds at once.
struct Places {
  std::uint32_t a_row, places;
};

// attend(grid) launches what leaves partial results of p's rows, which are taken in turns if their
// results would be too many. Outputs of them: by a kernel, unless p.arrivals are counted.
template <class Attend>
void attend_in_parts(CudaDevice& device,
                     AttentionParams& p,
                     AttentionGrid grid,
                     const Places& blocks,
                     Attend&& attend) {
  const std::size_t parts_a_row = std::size_t{grid.most_new} * p.n_heads * p.max_segments;
  const auto together = static_cast<std::uint32_t>(
      std::clamp<std::size_t>(kPartBytes / sizeof(float) / (parts_a_row * p.dim), 1, grid.n_rows));
  p.part_out = device.workspace<float>(kPartOut, together * parts_a_row * p.dim);
  p.part_ml = device.workspace<float2>(kPartMl, together * parts_a_row);
  p.part_tokens = grid.most_new;
  const std::uint32_t n_rows = grid.n_rows;
  for (std::uint32_t first = 0; first < n_rows; first += together, p.rows += together) {
    grid.n_rows = std::min(together, n_rows - first);
    grid.n_splits = splits_of(blocks.places, blocks.a_row * grid.n_rows, p.max_segments);
    attend(grid);
    if (p.arrivals == nullptr) launch_combine(device.queue(), p, grid);
  }
}

}  // namespace kvasir::backend::cuda
