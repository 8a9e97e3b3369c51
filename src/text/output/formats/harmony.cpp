// <|channel|>commentary to=functions.n <|constrain|>json<|message|>{…}<|call|>: gpt-oss. The header
// may also read `<|start|>assistant to=functions.n<|channel|>commentary json<|message|>`. The
// splitter of the channels puts the empty marker before a message with a recipient, and behind one
// that has no end.
#include "text/output/harmony.h"

#include <array>

#include "text/output/json_calls.h"
#include "text/output/tool_format.h"

namespace kvasir::text::out {
namespace {

enum Slot : std::uint8_t { kHeader, kBody };

constexpr std::array<std::string_view, 5> kMarkers{kHarmonyCall, "<|message|>", "<|call|>",
                                                   "<|end|>", "<|return|>"};
constexpr std::array kSteps{step::marker(0), step::until_marker(bit(1), kHeader),
                            step::until_marker(bit(0) | bit(2) | bit(3) | bit(4), kBody).or_end(),
                            step::emit(), step::end()};

bool build(const BuildInput& in, std::vector<ParsedCall>& calls) {
  const std::string header = in.spelled(kHeader);
  std::string_view name = harmony_recipient(header);
  if (!name.starts_with("functions.")) return false;
  name.remove_prefix(10);
  const std::string body = in.spelled(kBody);
  return trim(body).starts_with('{') && build_named_call(name, body, in.tools, calls);
}

}  // namespace

constinit const FormatSpec kHarmony{.format = ToolFormat::harmony,
                                    .name = "harmony",
                                    .markers = kMarkers,
                                    .openers = bit(0),
                                    .region = {kSteps, build}};

}  // namespace kvasir::text::out
