#include "text/output/tool_format.h"

#include <array>

namespace kvasir::text {
namespace out {
namespace {

constexpr std::array kList{&kGemma4,  &kHermes,   &kQwenXml, &kMinicpm, &kLlama3,
                           &kMistral, &kDeepseek, &kKimi,    &kGlm,     &kMinimax,
                           &kCohere,  &kGranite,  &kLfm2,    &kHarmony};

}  // namespace

std::span<const FormatSpec* const> tool_formats() { return kList; }

const FormatSpec* find_tool_format(ToolFormat format) {
  for (const FormatSpec* spec : kList) {
    if (spec->format == format) return spec;
  }
  return nullptr;
}

}  // namespace out

std::string_view name_of(ToolFormat format) noexcept {
  const out::FormatSpec* spec = out::find_tool_format(format);
  return spec != nullptr ? spec->name : "none";
}

Result<ToolFormat> parse_tool_format(std::string_view name) {
  std::string names = "none";
  if (name == "none") return ToolFormat::none;
  for (const out::FormatSpec* spec : out::tool_formats()) {
    if (spec->name == name) return spec->format;
    names += ", " + std::string(spec->name);
  }
  return invalid("unknown tool parser '" + std::string(name) + "'; there are " + names);
}

}  // namespace kvasir::text
