// <minimax:tool_call><invoke name="n"><parameter name="k">v</parameter></invoke>…
// </minimax:tool_call>: MiniMax M2.
#include <array>

#include "text/output/tool_format.h"
#include "text/output/xml_calls.h"

namespace kvasir::text::out {
namespace {

constexpr std::array<std::string_view, 6> kMarkers{"<minimax:tool_call>", "</minimax:tool_call>",
                                                   "<invoke name=",       "</invoke>",
                                                   "<parameter name=",    "</parameter>"};
constexpr std::array kSteps{step::marker(0),
                            step::space(),
                            step::marker(2),
                            step::until('>', kNameSlot),
                            step::space(),
                            /*5*/ step::marker(4).or_else(8),
                            step::until('>', kKeySlot),
                            step::until_marker(bit(5), kValueSlot).to(4),
                            step::marker(3),
                            step::emit(),
                            /*10*/ step::space(),
                            step::marker(2).or_else(12).to(3),
                            step::marker(1).or_else(13),
                            step::end()};

bool build(const BuildInput& in, std::vector<ParsedCall>& calls) {
  return build_tagged_call(in, {.name = unquote}, calls);
}

}  // namespace

constinit const FormatSpec kMinimax{.format = ToolFormat::minimax,
                                    .name = "minimax",
                                    .markers = kMarkers,
                                    .openers = bit(0),
                                    .region = {kSteps, build}};

}  // namespace kvasir::text::out
