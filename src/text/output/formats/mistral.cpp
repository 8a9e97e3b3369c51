// [TOOL_CALLS][{"name": …, "arguments": {…}, "id": …}, …] (Nemo), or
// [TOOL_CALLS]name[ARGS]{…} with maybe [CALL_ID]id before [ARGS] (Small 3.2, Devstral, Ministral).
#include <array>

#include "text/output/json_calls.h"
#include "text/output/tool_format.h"

namespace kvasir::text::out {
namespace {

enum Slot : std::uint8_t { kList, kName, kId, kArguments };

constexpr std::array<std::string_view, 3> kMarkers{"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"};
constexpr std::array kSteps{step::marker(0),
                            step::space(),
                            step::json(kList).or_else(5),
                            step::emit(),
                            step::end(),
                            /*5*/ step::name(kName),
                            step::space(),
                            step::marker(2).or_else(9),
                            step::name(kId),
                            step::marker(1).or_else(10),
                            /*10*/ step::space(),
                            step::json(kArguments),
                            step::emit(),
                            step::end()};

bool build(const BuildInput& in, std::vector<ParsedCall>& calls) {
  const std::string name = in.spelled(kName);
  if (name.empty()) return build_json_calls(in.spelled(kList), in.tools, calls);
  return build_named_call(name, in.spelled(kArguments), in.tools, calls);
}

}  // namespace

constinit const FormatSpec kMistral{.format = ToolFormat::mistral,
                                    .name = "mistral",
                                    .markers = kMarkers,
                                    .openers = bit(0),
                                    .region = {kSteps, build},
                                    .n_id_characters = 9,
                                    .id_prefix = ""};

}  // namespace kvasir::text::out
