// <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>…<｜tool▁sep｜>…<｜tool▁call▁end｜>…<｜tool▁calls▁end｜>,
// a call being `function<sep>name\n```json\n{…}\n``` ` (R1, V3) or `name<sep>{…}` (V3.1); and the
// tags with ｜DSML｜ in their names (V3.2 and later), whose parameters say themselves whether they
// are strings.
#include <algorithm>
#include <array>

#include "json/json.h"
#include "text/output/json_calls.h"
#include "text/output/tool_format.h"
#include "text/output/xml_calls.h"

namespace kvasir::text::out {
namespace {

enum Slot : std::uint8_t { kHead = 10, kBody };

constexpr std::array<std::string_view, 13> kMarkers{
    "<｜tool▁calls▁begin｜>",    "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",       "<｜tool▁sep｜>",       "<｜DSML｜function_calls>",
    "</｜DSML｜function_calls>", "<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>",
    "<｜DSML｜invoke name=",     "</｜DSML｜invoke>",    "<｜DSML｜parameter name=",
    "</｜DSML｜parameter>"};
constexpr std::array<std::string_view, 1> kSpelled{"｜DSML｜"};
constexpr std::array kSteps{step::marker(0).or_else(2),
                            step::space(),
                            step::marker(2).or_else(10),
                            step::until_marker(bit(4), kHead),
                            step::until_marker(bit(3), kBody),
                            /*5*/ step::emit(),
                            step::space(),
                            step::marker(2).or_else(8).to(3),
                            step::marker(1).or_else(9),
                            step::end(),
                            /*10*/ step::marker(5).or_else(11).to(12),
                            step::marker(7),
                            step::space(),
                            step::marker(9),
                            step::until('>', kNameSlot),
                            /*15*/ step::space(),
                            step::marker(11).or_else(19),
                            step::until('>', kKeySlot),
                            step::until_marker(bit(12), kValueSlot).to(15),
                            step::marker(10),
                            /*20*/ step::emit(),
                            step::space(),
                            step::marker(9).or_else(23).to(14),
                            step::marker(6).or_else(24).to(25),
                            step::marker(8).or_else(25),
                            /*25*/ step::end()};

// The text inside ```json … ```; false: there is no such fence.
bool unfence(std::string_view& text) {
  constexpr std::string_view kFence = "```";
  if (!text.starts_with(kFence) || !text.ends_with(kFence) || text.size() < 6) return false;
  text = text.substr(3, text.size() - 6);
  if (text.starts_with("json")) text.remove_prefix(4);
  text = trim(text);
  return true;
}

bool build_classic(const BuildInput& in, std::vector<ParsedCall>& calls) {
  const std::string head = in.spelled(kHead), body = in.spelled(kBody);
  std::string_view name = trim(head), rest = trim(body);
  if (!rest.starts_with('{') && !rest.starts_with("```")) {
    const std::size_t line_end = std::min(rest.find('\n'), rest.size());
    name = trim(rest.substr(0, line_end));
    rest = trim(rest.substr(line_end));
  }
  unfence(rest);
  return build_named_call(name, rest, in.tools, calls);
}

bool build_tags(const BuildInput& in, std::vector<ParsedCall>& calls) {
  const std::string name = unquote(in.spelled(kNameSlot));
  if (!in.tools.has(name)) return false;
  Arguments arguments;
  std::string attributes;
  for (const Capture& capture : in.captures) {
    if (capture.slot == kKeySlot) attributes = in.spelled(capture);
    if (capture.slot != kValueSlot) continue;
    const std::string key = unquote(attributes), value = in.spelled(capture);
    std::string json;
    if (attributes.find("string=\"true\"") != std::string::npos) {
      json::append_quoted(json, value);
    } else {
      json = in.tools.value_json(name, key, value);
    }
    arguments.add(key, json);
  }
  calls.push_back({name, std::move(arguments).take()});
  return true;
}

bool build(const BuildInput& in, std::vector<ParsedCall>& calls) {
  const bool is_classic = in.captures.front().slot == kHead;
  return is_classic ? build_classic(in, calls) : build_tags(in, calls);
}

}  // namespace

constinit const FormatSpec kDeepseek{.format = ToolFormat::deepseek,
                                     .name = "deepseek",
                                     .markers = kMarkers,
                                     .openers = bit(0) | bit(2) | bit(5) | bit(7),
                                     .region = {kSteps, build},
                                     .spelled = kSpelled};

}  // namespace kvasir::text::out
