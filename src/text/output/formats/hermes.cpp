// <tool_call>{"name": …, "arguments": {…}}</tool_call>: Qwen 2.5 and 3, Hermes, SmolLM3.
#include <array>

#include "text/output/json_calls.h"
#include "text/output/tool_format.h"

namespace kvasir::text::out {
namespace {

constexpr std::array<std::string_view, 2> kMarkers{"<tool_call>", "</tool_call>"};
constexpr std::array kSteps{step::marker(0), step::space(), step::json(0), step::space(),
                            step::marker(1), step::emit(),  step::end()};

bool build(const BuildInput& in, std::vector<ParsedCall>& calls) {
  return build_json_calls(in.spelled(0), in.tools, calls);
}

}  // namespace

constinit const FormatSpec kHermes{.format = ToolFormat::hermes,
                                   .name = "hermes",
                                   .markers = kMarkers,
                                   .openers = bit(0),
                                   .region = {kSteps, build}};

}  // namespace kvasir::text::out
