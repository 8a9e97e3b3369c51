#include "sampling/detail/tone_stage.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "sampling/detail/draw.h"
#include "sampling/detail/request_curves.h"

namespace kvasir::sampling::detail {
namespace {

// Parameters beyond are brought back to it: no score is so far from the pivot, and sums of several
// stay finite in f32.
constexpr float kNatsLimit = 1e37f;

Status check_hlg(const HlgCurve& o) {
  if (!(o.width >= 0)) return invalid("hlg.width must be at least 0");
  if (std::isnan(o.shoulder) || std::isnan(o.toe))
    return invalid("hlg.shoulder and hlg.toe must be numbers");
  if (!std::isfinite(o.pivot_offset)) return invalid("hlg.pivot_offset must be finite");
  if (!(o.gain >= 0 && std::isfinite(o.gain))) return invalid("hlg.gain must be at least 0");
  return {};
}

bool is_straight(const HlgCurve& o) {
  return o.width >= kNatsLimit || (o.shoulder <= 0 && o.toe <= 0);
}

float bounded(float nats) { return std::clamp(nats, -kNatsLimit, kNatsLimit); }

}  // namespace

float hlg_base(std::span<const float> x, const Peak& top, HlgPivot pivot, FilterScratch& scratch) {
  if (pivot == HlgPivot::top) return 0.0f;
  if (pivot == HlgPivot::entropy) return static_cast<float>(mean_below_max(x, top.max));
  constexpr float kHalf = 0.5f;
  return top_p_cutoff(x, normalizer_of(x, top.max), kHalf, scratch).score - top.max;
}

Result<ToneStage> ToneStage::make(const SamplingOptions& options) {
  ToneStage stage;
  if (options.hlg && !options.curve.empty()) return invalid(kHlgAndCurve);
  if (options.hlg) KVASIR_TRY_DO(check_hlg(*options.hlg));
  std::optional<MonotoneCurve> curve;
  if (!options.curve.empty()) {
    KVASIR_TRY(curve, MonotoneCurve::make(options.curve));
  }
  if (!(options.temperature > 0)) return stage;
  stage.curve_ = std::move(curve);
  if (!options.hlg) return stage;
  HlgCurve hlg = *options.hlg;
  for (float* nats : {&hlg.width, &hlg.shoulder, &hlg.toe, &hlg.pivot_offset})
    *nats = bounded(*nats);
  stage.hlg_ = hlg;
  stage.gain_ = hlg.gain > 0 ? hlg.gain : scale_of(options.temperature);
  return stage;
}

// HLG without its gain, which the draw applies to differences: m·f(a) − m·f(b) = m·(f(a) − f(b)),
// finite whatever m.
TokenId ToneStage::draw(std::span<const float> x,
                        const Peak& top,
                        const Normalizer& norm,
                        std::span<float> out,
                        std::uint64_t seed,
                        std::uint64_t position,
                        FilterScratch& scratch) const {
  const bool is_plain = hlg_ ? is_straight(*hlg_) : curve_->is_identity();
  if (is_plain) return draw_scaled(x, top, gain_, seed, position);
  if (hlg_) {
    const float pivot = hlg_base(x, top, hlg_->pivot, scratch) - hlg_->pivot_offset;
    bend(x, top.max, {hlg_->width, hlg_->shoulder, hlg_->toe, pivot}, out);
  } else {
    curve_->apply(x, norm, out);
  }
  return draw_scaled(out, find_peak(out), gain_, seed, position);
}

}  // namespace kvasir::sampling::detail
