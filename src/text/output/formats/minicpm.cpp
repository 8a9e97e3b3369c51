// <function name="n"><param name="k">v</param></function>, where values are XML: CDATA sections and
// entities: MiniCPM5.
#include <array>

#include "text/output/tool_format.h"
#include "text/output/xml_calls.h"

namespace kvasir::text::out {
namespace {

constexpr std::array<std::string_view, 6> kMarkers{"<function", "</function>", "<param",
                                                   "</param>",  "<![CDATA[",   "]]>"};
constexpr std::array kSteps{step::marker(0),
                            step::space(),
                            step::text("name="),
                            step::until('>', kNameSlot),
                            step::space(),
                            /*5*/ step::marker(2).or_else(10),
                            step::space(),
                            step::text("name="),
                            step::until('>', kKeySlot),
                            step::until_marker(bit(3), kValueSlot).quoted(4, 5).to(4),
                            /*10*/ step::marker(1),
                            step::emit(),
                            step::end()};

std::string decode_name(std::string_view attribute) { return decode_xml(unquote(attribute)); }

bool build(const BuildInput& in, std::vector<ParsedCall>& calls) {
  return build_tagged_call(in, {.name = decode_name, .value = decode_xml}, calls);
}

}  // namespace

constinit const FormatSpec kMinicpm{.format = ToolFormat::minicpm,
                                    .name = "minicpm",
                                    .markers = kMarkers,
                                    .openers = bit(0),
                                    .region = {kSteps, build}};

}  // namespace kvasir::text::out
