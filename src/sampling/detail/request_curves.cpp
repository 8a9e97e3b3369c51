#include "sampling/detail/request_curves.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sampling/detail/monotone_curve.h"

namespace kvasir::sampling::detail {
namespace {

using Bounds = FieldReader::Bounds;

// A null object is as good as none.
const json::Value* find_object(FieldReader& in, std::string_view field) {
  const json::Value* v = in.find(field);
  if (!v || v->is_null()) return nullptr;
  if (!v->is_object()) in.fail(type_text(field, "dict"));
  return v->is_object() ? v : nullptr;
}

std::optional<HlgPivot> read_pivot(FieldReader& in) {
  const json::Value* v = in.find("pivot");
  if (!v) return std::nullopt;
  const std::string* s = v->as_string();
  if (!s) return in.fail(type_text(in.name("pivot"), "str"));
  if (*s == "top") return HlgPivot::top;
  if (*s == "entropy") return HlgPivot::entropy;
  if (*s == "median") return HlgPivot::median;
  return in.fail(in.name("pivot") + " must be one of top, entropy, median");
}

PartialHlg read_hlg(FieldReader& in) {
  PartialHlg out;
  out.enabled = in.boolean("enabled");
  out.width = in.number("width", Bounds::not_negative);
  out.shoulder = in.number("shoulder", Bounds::none);
  out.toe = in.number("toe", Bounds::none);
  out.pivot_offset = in.number("pivot_offset", Bounds::none);
  out.pivot = read_pivot(in);
  out.gain = in.number("gain", Bounds::not_negative);
  return out;
}

Result<CurvePoint> read_point(const json::Value& point, const std::string& name) {
  if (!point.is_object()) return invalid(type_text(name, "dict"));
  FieldReader in(point, name + ".");
  const auto coordinate = [&](std::string_view field) {
    const auto value = in.real(field, Bounds::not_negative);
    if (!value && in.status()) in.fail(type_text(in.name(field), kNumberType));
    return value.value_or(0.0);
  };
  const double x = coordinate("x_pct"), y = coordinate("y_pct");
  KVASIR_TRY_DO(in.status());
  return CurvePoint{x, y};
}

Result<std::vector<CurvePoint>> read_points(const json::Value& curve) {
  const json::Value* list = curve.find("points");
  if (!list || !list->is_array()) return invalid(type_text("curve.points", "list"));
  const json::Array& items = *list->as_array();
  std::vector<CurvePoint> points;
  // One more than allowed tells MonotoneCurve enough.
  for (std::size_t i = 0; i < items.size() && i <= kMaxCurvePoints; ++i) {
    KVASIR_TRY(const CurvePoint point,
               read_point(items[i], "curve.points[" + std::to_string(i) + "]"));
    points.push_back(point);
  }
  KVASIR_TRY_DO(MonotoneCurve::make(points));
  return points;
}

template <class T>
void pick(std::span<const PartialSampling> layers, std::optional<T> PartialHlg::*field, T& to) {
  for (const PartialSampling& layer : layers) {
    if (layer.hlg.*field) {
      to = *(layer.hlg.*field);
      return;
    }
  }
}

}  // namespace

void read_curves(FieldReader& in, PartialSampling& out) {
  const json::Value* hlg = find_object(in, "hlg");
  if (hlg) {
    FieldReader fields(*hlg, "hlg.");
    out.hlg = read_hlg(fields);
    if (!fields.status()) return void(in.fail(fields.status().error().what));
  }
  const json::Value* curve = find_object(in, "curve");
  if (!curve) return;
  auto points = read_points(*curve);
  if (!points) return void(in.fail(points.error().what));
  if (hlg && out.hlg.enabled.value_or(true)) return void(in.fail(kHlgAndCurve));
  out.curve = std::move(*points);
}

// A request's curve replaces a server's hlg, and the other way round.
void merge_curves(std::span<const PartialSampling> layers, SamplingOptions& out) {
  std::optional<bool> enabled;
  for (const PartialSampling& layer : layers) {
    if (!enabled) enabled = layer.hlg.enabled;
    if (enabled == true) break;
    if (layer.curve) {
      out.curve = *layer.curve;
      return;
    }
  }
  if (enabled != true) return;
  HlgCurve& hlg = out.hlg.emplace();
  pick(layers, &PartialHlg::width, hlg.width);
  pick(layers, &PartialHlg::shoulder, hlg.shoulder);
  pick(layers, &PartialHlg::toe, hlg.toe);
  pick(layers, &PartialHlg::pivot_offset, hlg.pivot_offset);
  pick(layers, &PartialHlg::pivot, hlg.pivot);
  pick(layers, &PartialHlg::gain, hlg.gain);
}

}  // namespace kvasir::sampling::detail
