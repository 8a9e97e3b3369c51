// <|tool_calls_section_begin|><|tool_call_begin|>functions.n:0<|tool_call_argument_begin|>{…}
// <|tool_call_end|>…<|tool_calls_section_end|>, without the line break: Kimi K2.
#include <algorithm>
#include <array>

#include "text/output/json_calls.h"
#include "text/output/tool_format.h"

namespace kvasir::text::out {
namespace {

enum Slot : std::uint8_t { kId, kArguments };

constexpr std::array<std::string_view, 5> kMarkers{
    "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
    "<|tool_call_end|>", "<|tool_call_argument_begin|>"};
constexpr std::array kSteps{step::marker(0).or_else(2),
                            step::space(),
                            step::marker(2),
                            step::space(),
                            step::name(kId),
                            /*5*/ step::space(),
                            step::marker(4),
                            step::until_marker(bit(3), kArguments),
                            step::emit(),
                            step::space(),
                            /*10*/ step::marker(2).or_else(11).to(3),
                            step::marker(1).or_else(12),
                            step::end()};

// "functions.get:0" → "get"
std::string_view tool_name(std::string_view id) {
  if (id.starts_with("functions.")) id.remove_prefix(10);
  const std::size_t colon = id.rfind(':');
  if (colon == std::string_view::npos) return id;
  const std::string_view number = id.substr(colon + 1);
  const bool is_number =
      std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
  return is_number ? id.substr(0, colon) : id;
}

bool build(const BuildInput& in, std::vector<ParsedCall>& calls) {
  const std::string id = in.spelled(kId);
  return build_named_call(tool_name(id), in.spelled(kArguments), in.tools, calls);
}

}  // namespace

constinit const FormatSpec kKimi{.format = ToolFormat::kimi,
                                 .name = "kimi",
                                 .markers = kMarkers,
                                 .openers = bit(0) | bit(2),
                                 .region = {kSteps, build}};

}  // namespace kvasir::text::out
