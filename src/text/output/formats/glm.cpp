// <tool_call>name\n<arg_key>k</arg_key>\n<arg_value>v</arg_value>…</tool_call>: GLM 4.5 and later.
#include <array>

#include "text/output/tool_format.h"
#include "text/output/xml_calls.h"

namespace kvasir::text::out {
namespace {

constexpr std::array<std::string_view, 6> kMarkers{"<tool_call>", "</tool_call>", "<arg_key>",
                                                   "</arg_key>",  "<arg_value>",  "</arg_value>"};
constexpr std::array kSteps{step::marker(0),
                            step::space(),
                            step::name(kNameSlot),
                            step::space(),
                            step::marker(2).or_else(9),
                            /*5*/ step::until_marker(bit(3), kKeySlot),
                            step::space(),
                            step::marker(4),
                            step::until_marker(bit(5), kValueSlot).to(3),
                            step::marker(1),
                            /*10*/ step::emit(),
                            step::end()};

bool build(const BuildInput& in, std::vector<ParsedCall>& calls) {
  return build_tagged_call(in, {}, calls);
}

}  // namespace

constinit const FormatSpec kGlm{.format = ToolFormat::glm,
                                .name = "glm",
                                .markers = kMarkers,
                                .openers = bit(0),
                                .region = {kSteps, build}};

}  // namespace kvasir::text::out
