// <tool_call><function=n><parameter=k>v</parameter>…</function></tool_call>, a line break inside
// each tag's ends: Qwen3-Coder, Qwen3.5; Seed-OSS with its own outer tag. Models leave the outer
// tags out now and then.
#include <array>

#include "text/output/tool_format.h"
#include "text/output/xml_calls.h"

namespace kvasir::text::out {
namespace {

constexpr std::array<std::string_view, 8> kMarkers{
    "<tool_call>", "</tool_call>", "<function=",       "</function>",
    "<parameter=", "</parameter>", "<seed:tool_call>", "</seed:tool_call>"};
constexpr std::array kSteps{step::marker(0).or_else(1).to(2),
                            step::marker(6).or_else(15),
                            step::space(),
                            step::marker(2),
                            step::until('>', kNameSlot),
                            /*5*/ step::space(),
                            step::marker(4).or_else(9),
                            step::until('>', kKeySlot),
                            step::until_marker(bit(5), kValueSlot).to(5),
                            step::marker(3),
                            /*10*/ step::space(),
                            step::marker(2).or_else(12).to(4),
                            step::marker(1).or_else(13).to(14),
                            step::marker(7),
                            step::emit().to(25),
                            /*15, without outer tags*/ step::marker(2),
                            step::until('>', kNameSlot),
                            step::space(),
                            step::marker(4).or_else(21),
                            step::until('>', kKeySlot),
                            /*20*/ step::until_marker(bit(5), kValueSlot).to(17),
                            step::marker(3),
                            step::emit(),
                            step::space(),
                            step::marker(1).or_else(25),
                            /*25*/ step::end()};

bool build(const BuildInput& in, std::vector<ParsedCall>& calls) {
  return build_tagged_call(in, {.value = without_outer_newlines}, calls);
}

}  // namespace

constinit const FormatSpec kQwenXml{.format = ToolFormat::qwen_xml,
                                    .name = "qwen_xml",
                                    .markers = kMarkers,
                                    .openers = bit(0) | bit(2) | bit(6),
                                    .region = {kSteps, build}};

}  // namespace kvasir::text::out
