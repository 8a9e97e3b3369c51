// The stage that HLG or a curve puts in the place of temperature and filters (SAMP-13…15): scores
// of a row, masked or not, to the drawn token. Private to sampling/.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "contract/sampling.h"
#include "sampling/detail/filters.h"
#include "sampling/detail/kernels.h"
#include "sampling/detail/monotone_curve.h"

namespace kvasir::sampling::detail {

// The base of HLG's pivot relative to the best token left, ≤ 0. Probabilities are the softmax of
// what is left, so that a mask moves the curve along and the median always exists. top =
// find_peak(x), with a token left.
float hlg_base(std::span<const float> x, const Peak& top, HlgPivot pivot, FilterScratch& scratch);

class ToneStage {
 public:
  // An inactive stage for options without either, or with temperature 0. invalid_argument: both,
  // parameters that are NaN or out of bounds, or a curve that is not one.
  static Result<ToneStage> make(const SamplingOptions& options);

  bool is_active() const noexcept { return hlg_ || curve_; }
  // The curve maps absolute probabilities; HLG is the same whatever is added to a row.
  bool needs_normalizer() const noexcept { return curve_.has_value(); }

  // x [vocab], top = find_peak(x) with a token left; norm: of the row before the mask, if it is
  // needed. `out` [vocab] is scratch, and may be x.
  TokenId draw(std::span<const float> x,
               const Peak& top,
               const Normalizer& norm,
               std::span<float> out,
               std::uint64_t seed,
               std::uint64_t position,
               FilterScratch& scratch) const;

 private:
  ToneStage() = default;

  std::optional<HlgCurve> hlg_;
  float gain_ = 1.0f;
  std::optional<MonotoneCurve> curve_;
};

}  // namespace kvasir::sampling::detail
