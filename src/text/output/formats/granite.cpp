// Granite 3: <|tool_call|>[{"name": …, "arguments": {…}}, …]; Granite 4: as hermes.
#include <array>

#include "text/output/json_calls.h"
#include "text/output/tool_format.h"

namespace kvasir::text::out {
namespace {

constexpr std::array<std::string_view, 3> kMarkers{"<|tool_call|>", "<tool_call>", "</tool_call>"};
constexpr std::array kSteps{
    step::marker(0).or_else(5), step::space(), step::json(0), step::emit(),  step::end(),
    /*5*/ step::marker(1),      step::space(), step::json(0), step::space(), step::marker(2),
    /*10*/ step::emit(),        step::end()};

bool build(const BuildInput& in, std::vector<ParsedCall>& calls) {
  return build_json_calls(in.spelled(0), in.tools, calls);
}

}  // namespace

constinit const FormatSpec kGranite{.format = ToolFormat::granite,
                                    .name = "granite",
                                    .markers = kMarkers,
                                    .openers = bit(0) | bit(1),
                                    .region = {kSteps, build}};

}  // namespace kvasir::text::out
