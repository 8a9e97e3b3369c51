#include <cmath>

#include "backend/ref/detail/ref_ops.h"
#include "base/philox.h"
#include "base/thread_pool.h"

namespace kvasir::backend::ref {
namespace {

double score_of(std::span<const float> x, std::uint32_t token, float top, const PickRow& row) {
  const auto words = philox4x32(
      {static_cast<std::uint32_t>(row.position), static_cast<std::uint32_t>(row.position >> 32),
       token / 4, 0},
      {static_cast<std::uint32_t>(row.seed), static_cast<std::uint32_t>(row.seed >> 32)});
  return static_cast<double>(x[token] - top) * static_cast<double>(row.scale) +
         ops::gumbel(words[token % 4]);
}

// SAMP-2 and SAMP-12 as written, every token on its own.
std::uint32_t pick_one(std::span<const float> x, const PickRow& row) {
  if (row.kind == PickKind::none) return kNoToken;
  std::uint32_t winner = 0;
  for (std::uint32_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(x[i])) return kNoToken;
    if (x[i] > x[winner]) winner = i;
  }
  if (row.kind == PickKind::highest) return winner;
  const float top = x[winner];
  winner = 0;
  double best = score_of(x, 0, top, row);
  for (std::uint32_t i = 1; i < x.size(); ++i) {
    const double score = score_of(x, i, top, row);
    if (score > best) {
      best = score;
      winner = i;
    }
  }
  return winner;
}

}  // namespace

void pick(ops::Device&, const ops::PickArgs& a) noexcept {
  const FloatModeScope mode;
  for (std::uint32_t r = 0; r < a.scores.n_rows; ++r)
    a.picked[r] = pick_one({a.scores.row(r), a.scores.n_cols}, a.rows[r]);
}

}  // namespace kvasir::backend::ref
