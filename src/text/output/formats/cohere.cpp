// <|START_ACTION|>[{"tool_call_id": …, "tool_name": …, "parameters": {…}}, …]<|END_ACTION|>:
// Command R7B and later.
#include <array>

#include "text/output/json_calls.h"
#include "text/output/tool_format.h"

namespace kvasir::text::out {
namespace {

constexpr std::array<std::string_view, 2> kMarkers{"<|START_ACTION|>", "<|END_ACTION|>"};
constexpr std::array kSteps{step::marker(0), step::space(), step::json(0), step::space(),
                            step::marker(1), step::emit(),  step::end()};

bool build(const BuildInput& in, std::vector<ParsedCall>& calls) {
  return build_json_calls(in.spelled(0), in.tools, calls);
}

}  // namespace

constinit const FormatSpec kCohere{.format = ToolFormat::cohere,
                                   .name = "cohere",
                                   .markers = kMarkers,
                                   .openers = bit(0),
                                   .region = {kSteps, build}};

}  // namespace kvasir::text::out
