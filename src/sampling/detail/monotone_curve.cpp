#include "sampling/detail/monotone_curve.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace kvasir::sampling::detail {
namespace {

constexpr double kLeastPercent = 1e-9;    // stands for 0, which has no logarithm
constexpr double kFallAllowed = -1e-12;   // of a secant: rounding of points on a level
constexpr double kLogWeightLimit = 1e37;  // differences of two stay finite in f32

struct Knot {
  double x = 0.0, y = 0.0;
};

double log_of_percent(double percent) { return std::log(std::max(percent, kLeastPercent) / 100); }

// The tangent of an inner knot between spans h1, h2 with secants d1, d2: their weighted harmonic
// mean, which never exceeds three times the smaller one, so neither cubic overshoots.
double inner_tangent(double h1, double h2, double d1, double d2) {
  if (d1 * d2 <= 0) return 0.0;
  const double w1 = 2 * h2 + h1, w2 = h2 + 2 * h1;
  return (w1 + w2) / (w1 / d1 + w2 / d2);
}

}  // namespace

MonotoneCurve::MonotoneCurve(std::vector<Piece> pieces) noexcept : pieces_(std::move(pieces)) {
  slope_below_ = std::max(pieces_.front().slope, 1.0);
  is_identity_ =
      std::all_of(pieces_.begin(), pieces_.end(), [](const Piece& p) { return p.start == p.at; });
}

Result<MonotoneCurve> MonotoneCurve::make(std::span<const CurvePoint> points) {
  if (points.size() < 2) return invalid("curve must have at least 2 points");
  if (points.size() > kMaxCurvePoints) return invalid("curve must have at most 64 points");
  std::vector<Knot> knots;
  for (const CurvePoint& p : points) {
    if (!std::isfinite(p.x_pct) || !std::isfinite(p.y_pct))
      return invalid("curve points must be finite");
    knots.push_back({log_of_percent(p.x_pct), log_of_percent(p.y_pct)});
  }
  std::sort(knots.begin(), knots.end(), [](const Knot& a, const Knot& b) { return a.x < b.x; });

  const std::size_t n_spans = knots.size() - 1;
  std::vector<double> spans(n_spans), secants(n_spans);
  for (std::size_t i = 0; i < n_spans; ++i) {
    spans[i] = knots[i + 1].x - knots[i].x;
    if (!(spans[i] > 0)) return invalid("curve must be monotone");
    secants[i] = (knots[i + 1].y - knots[i].y) / spans[i];
    if (!(secants[i] >= kFallAllowed)) return invalid("curve must be monotone");
  }

  std::vector<Piece> pieces(knots.size());
  for (std::size_t i = 0; i < knots.size(); ++i) {
    const bool is_end = i == 0 || i == n_spans;
    pieces[i].start = knots[i].x;
    pieces[i].at = knots[i].y;
    pieces[i].slope = is_end ? secants[i == 0 ? 0 : n_spans - 1]
                             : inner_tangent(spans[i - 1], spans[i], secants[i - 1], secants[i]);
  }
  for (std::size_t i = 0; i < n_spans; ++i) {
    const double h = spans[i], d = secants[i], m0 = pieces[i].slope, m1 = pieces[i + 1].slope;
    pieces[i].square = (3 * d - 2 * m0 - m1) / h;
    pieces[i].cube = (m0 + m1 - 2 * d) / (h * h);
  }
  return MonotoneCurve(std::move(pieces));
}

double MonotoneCurve::operator()(double lp) const noexcept {
  const Piece& first = pieces_.front();
  if (lp < first.start) return first.at + (lp - first.start) * slope_below_;
  const auto after = std::upper_bound(pieces_.begin(), pieces_.end(), lp,
                                      [](double v, const Piece& p) { return v < p.start; });
  const Piece& p = *(after - 1);
  const double s = lp - p.start;
  return p.at + s * (p.slope + s * (p.square + s * p.cube));
}

void MonotoneCurve::apply(std::span<const float> x,
                          const Normalizer& norm,
                          std::span<float> out) const noexcept {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == kExcluded) {
      out[i] = kExcluded;
      continue;
    }
    const float lp = (x[i] - norm.max) - norm.log_sum;
    const double y = (*this)(static_cast<double>(lp));
    out[i] = static_cast<float>(std::clamp(y, -kLogWeightLimit, kLogWeightLimit));
  }
}

}  // namespace kvasir::sampling::detail
