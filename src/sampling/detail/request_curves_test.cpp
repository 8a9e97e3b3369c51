#include "sampling/detail/request_curves.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "sampling/sampling_session.h"

namespace kvasir::sampling {
namespace {

Result<PartialSampling> parse(std::string_view text) {
  const auto body = json::parse(text);
  EXPECT_TRUE(body.has_value()) << text;
  return parse_sampling(*body, Surface::chat, 1000);
}
std::string error_of(std::string_view text) {
  const auto r = parse(text);
  return r ? "accepted" : r.error().what;
}
PartialSampling layer(std::string_view text) {
  auto r = parse(text);
  EXPECT_TRUE(r) << (r ? "" : r.error().what);
  return std::move(*r);
}
SamplingOptions merged(const std::vector<PartialSampling>& layers) {
  return merge_sampling(layers, Surface::chat).options;
}

constexpr std::string_view kCurve =
    R"("curve":{"points":[{"x_pct":1,"y_pct":2},{"x_pct":9,"y_pct":8}]})";

TEST(RequestCurves, RejectWrongTypesAndBoundsWithExactTexts) {  // SAMP-13, 14 in SAMP-41's style
  const struct {
    const char* body;
    const char* error;
  } cases[] = {
      {R"({"hlg":true})", "hlg must be of type dict"},
      {R"({"hlg":[]})", "hlg must be of type dict"},
      {R"({"hlg":{"enabled":1}})", "hlg.enabled must be of type bool"},
      {R"({"hlg":{"width":"inf"}})", "hlg.width must be of type ('float', 'int')"},
      {R"({"hlg":{"width":-0.5}})", "hlg.width must be at least 0"},
      {R"({"hlg":{"shoulder":true}})", "hlg.shoulder must be of type ('float', 'int')"},
      {R"({"hlg":{"toe":{}}})", "hlg.toe must be of type ('float', 'int')"},
      {R"({"hlg":{"pivot_offset":"6"}})", "hlg.pivot_offset must be of type ('float', 'int')"},
      {R"({"hlg":{"pivot":1}})", "hlg.pivot must be of type str"},
      {R"({"hlg":{"pivot":"mean"}})", "hlg.pivot must be one of top, entropy, median"},
      {R"({"hlg":{"gain":"1"}})", "hlg.gain must be of type ('float', 'int')"},
      {R"({"hlg":{"gain":-1}})", "hlg.gain must be at least 0"},
      {R"({"hlg":{"width":-1},"curve":3})", "hlg.width must be at least 0"},
      {R"({"curve":3})", "curve must be of type dict"},
      {R"({"curve":{}})", "curve.points must be of type list"},
      {R"({"curve":{"points":null}})", "curve.points must be of type list"},
      {R"({"curve":{"points":{}}})", "curve.points must be of type list"},
      {R"({"curve":{"points":[]}})", "curve must have at least 2 points"},
      {R"({"curve":{"points":[{"x_pct":1,"y_pct":1}]}})", "curve must have at least 2 points"},
      {R"({"curve":{"points":[[1,1],[2,2]]}})", "curve.points[0] must be of type dict"},
      {R"({"curve":{"points":[{"x_pct":1,"y_pct":1},{"x_pct":2}]}})",
       "curve.points[1].y_pct must be of type ('float', 'int')"},
      {R"({"curve":{"points":[{"x_pct":"1","y_pct":1}]}})",
       "curve.points[0].x_pct must be of type ('float', 'int')"},
      {R"({"curve":{"points":[{"x_pct":null,"y_pct":1}]}})",
       "curve.points[0].x_pct must be of type ('float', 'int')"},
      {R"({"curve":{"points":[{"x_pct":-1,"y_pct":1}]}})",
       "curve.points[0].x_pct must be at least 0"},
      {R"({"curve":{"points":[{"x_pct":1,"y_pct":2},{"x_pct":1,"y_pct":3}]}})",
       "curve must be monotone"},
      {R"({"curve":{"points":[{"x_pct":1,"y_pct":2},{"x_pct":2,"y_pct":1}]}})",
       "curve must be monotone"},
      {R"({"temperature":-1,"curve":3})", "temperature must be at least 0"},
  };
  for (const auto& c : cases) EXPECT_EQ(error_of(c.body), c.error) << c.body;

  std::string many = R"({"curve":{"points":[)";
  for (int i = 1; i <= 65; ++i) {
    const std::string v = std::to_string(i);
    many += (i > 1 ? "," : "") + (R"({"x_pct":)" + v + R"(,"y_pct":)" + v + "}");
  }
  EXPECT_EQ(error_of(many + "]}}"), "curve must have at most 64 points");
}

TEST(RequestCurves, HlgAndCurveDoNotGoTogether) {  // SAMP-15
  const std::string curve(kCurve);
  EXPECT_EQ(error_of(R"({"hlg":{"enabled":true},)" + curve + "}"),
            "hlg and curve cannot be combined");
  EXPECT_EQ(error_of(R"({"hlg":{"width":3},)" + curve + "}"), "hlg and curve cannot be combined");
  EXPECT_EQ(error_of(R"({"hlg":{"enabled":false},)" + curve + "}"), "accepted");
  EXPECT_EQ(error_of(R"({"hlg":null,)" + curve + "}"), "accepted");
  EXPECT_EQ(error_of(R"({"hlg":{"enabled":true},"curve":null})"), "accepted");

  SamplingOptions both;
  both.hlg.emplace();
  both.curve = {{1, 1}, {2, 2}};
  const auto session = SamplingSession::make(both, {10, {}, {}, 1});
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().what, "hlg and curve cannot be combined");
  EXPECT_EQ(session.error().code, Errc::invalid_argument);
}

TEST(RequestCurves, HlgHasItsDefaultsWhereNothingIsSaid) {  // SAMP-13
  const SamplingOptions o = merged({layer(R"({"hlg":{"enabled":true,"toe":null}})")});
  ASSERT_TRUE(o.hlg);

  EXPECT_EQ(o.hlg->width, 4.0f);
  EXPECT_EQ(o.hlg->shoulder, 4.0f);
  EXPECT_EQ(o.hlg->toe, 6.0f);
  EXPECT_EQ(o.hlg->pivot_offset, 6.0f);
  EXPECT_EQ(o.hlg->pivot, HlgPivot::top);
  EXPECT_EQ(o.hlg->gain, 0.0f);
  EXPECT_FALSE(merged({layer(R"({"hlg":{"width":3}})")}).hlg);
  EXPECT_FALSE(merged({layer("{}")}).hlg);
}

TEST(RequestCurves, HlgFieldsMergeOverTheServersOneByOne) {  // SAMP-13, 40
  const auto server = layer(
      R"({"hlg":{"enabled":true,"width":1,"shoulder":2,"toe":3,"pivot":"entropy","gain":2}})");
  const SamplingOptions o = merged(
      {layer(R"({"hlg":{"width":9,"pivot":"median","pivot_offset":-1,"shoulder":0}})"), server});
  ASSERT_TRUE(o.hlg);

  EXPECT_EQ(o.hlg->width, 9.0f);
  EXPECT_EQ(o.hlg->shoulder, 0.0f);
  EXPECT_EQ(o.hlg->toe, 3.0f);
  EXPECT_EQ(o.hlg->pivot_offset, -1.0f);
  EXPECT_EQ(o.hlg->pivot, HlgPivot::median);
  EXPECT_EQ(o.hlg->gain, 2.0f);
  EXPECT_FALSE(merged({layer(R"({"hlg":{"enabled":false}})"), server}).hlg);
  EXPECT_EQ(merged({layer(R"({"hlg":{"gain":0}})"), server}).hlg->gain, 0.0f);
}

TEST(RequestCurves, TheFirstLayerThatAsksForACurveDecidesWhich) {
  const auto hlg = layer(R"({"hlg":{"enabled":true}})");
  const auto curve = layer("{" + std::string(kCurve) + "}");
  const auto off = layer(R"({"hlg":{"enabled":false}})");

  const SamplingOptions replaced = merged({curve, hlg});
  EXPECT_FALSE(replaced.hlg);
  ASSERT_EQ(replaced.curve.size(), 2u);
  EXPECT_EQ(replaced.curve[1].x_pct, 9.0);
  EXPECT_EQ(replaced.curve[1].y_pct, 8.0);
  const SamplingOptions other = merged({hlg, curve});
  EXPECT_TRUE(other.hlg);
  EXPECT_TRUE(other.curve.empty());
  EXPECT_EQ(merged({off, curve, hlg}).curve.size(), 2u);
  EXPECT_TRUE(merged({layer("{}"), off, hlg}).curve.empty());
  EXPECT_FALSE(merged({layer("{}"), off, hlg}).hlg);
}

TEST(RequestCurves, WhatIsAcceptedMakesASession) {
  for (const char* body :
       {R"({"hlg":{"enabled":true,"width":1e308,"shoulder":-1e308,"toe":1e300,"gain":1e300}})",
        R"({"hlg":{"enabled":true,"width":0,"shoulder":1e-300,"pivot_offset":-1e308}})",
        R"({"curve":{"points":[{"x_pct":0,"y_pct":0},{"x_pct":1e308,"y_pct":1e308}]}})"}) {
    EXPECT_TRUE(SamplingSession::make(merged({layer(body)}), {10, {}, {}, 1})) << body;
  }
}

}  // namespace
}  // namespace kvasir::sampling
