// The user's curve of probabilities (SAMP-14): a monotone cubic interpolation in log space (Fritsch
// & Carlson, "Monotone piecewise cubic interpolation", 1980; tangents after Fritsch & Butland,
// 1984). Immutable once made. Private to sampling/.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "contract/sampling.h"
#include "sampling/detail/filters.h"

namespace kvasir::sampling::detail {

inline constexpr std::size_t kMaxCurvePoints = 64;

class MonotoneCurve {
 public:
  // Points in any order. invalid_argument: fewer than 2 or more than 64, not finite, two of the
  // same x, or falling.
  static Result<MonotoneCurve> make(std::span<const CurvePoint> points);

  // ln(probability) → ln(weight), for finite lp.
  double operator()(double lp) const noexcept;
  // Every point says x = y: the curve changes nothing.
  bool is_identity() const noexcept { return is_identity_; }

  // out_i = curve(lp_i), lp_i = (x_i − max) − log_sum; excluded tokens stay so. out may be x.
  void apply(std::span<const float> x, const Normalizer& norm, std::span<float> out) const noexcept;

 private:
  // From `start` on: at + s·(slope + s·(square + s·cube)), s = lp − start.
  struct Piece {
    double start = 0.0, at = 0.0, slope = 0.0, square = 0.0, cube = 0.0;
  };
  explicit MonotoneCurve(std::vector<Piece> pieces) noexcept;

  std::vector<Piece> pieces_;  // ascending; the last one is the line above the last point
  double slope_below_ = 1.0;   // of the line below the first point
  bool is_identity_ = false;
};

}  // namespace kvasir::sampling::detail
