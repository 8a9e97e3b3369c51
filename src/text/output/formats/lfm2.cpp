// <|tool_call_start|>[f(a=1, b="x")]<|tool_call_end|>, or a JSON list between the same markers when
// the model was asked for JSON: LFM2.
#include <array>

#include "text/output/json_calls.h"
#include "text/output/python_calls.h"
#include "text/output/tool_format.h"

namespace kvasir::text::out {
namespace {

constexpr std::array<std::string_view, 2> kMarkers{"<|tool_call_start|>", "<|tool_call_end|>"};
constexpr std::array kSteps{step::marker(0), step::space(),
                            step::text("["), step::until_marker(bit(1), 0),
                            step::emit(),    step::end()};

bool build(const BuildInput& in, std::vector<ParsedCall>& calls) {
  const std::string list = "[" + in.spelled(0);
  const bool is_json = trim(std::string_view(list).substr(1)).starts_with('{');
  return is_json ? build_json_calls(list, in.tools, calls)
                 : build_python_calls(list, in.tools, calls);
}

}  // namespace

constinit const FormatSpec kLfm2{.format = ToolFormat::lfm2,
                                 .name = "lfm2",
                                 .markers = kMarkers,
                                 .openers = bit(0),
                                 .region = {kSteps, build}};

}  // namespace kvasir::text::out
