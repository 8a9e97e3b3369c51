// Byte 0: tool format, byte 1: reasoning format, byte 2: switches; then token ids of the small
// tokenizer: a byte below 0xF8 is itself, the rest with the next byte number the special tokens.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "text/output/byte_vocab.h"
#include "text/output/tool_format.h"
#include "text/output_parser.h"

namespace {

using namespace kvasir;
using namespace kvasir::text;

const Tokenizer& tokenizer(ToolFormat format, bool is_special) {
  static std::array<std::array<std::unique_ptr<Tokenizer>, 2>, 15> made;
  auto& slot = made[static_cast<std::size_t>(format)][is_special ? 1 : 0];
  if (slot != nullptr) return *slot;
  std::vector<std::string> specials{"<think>",    "</think>",    "[THINK]",       "[/THINK]",
                                    "<|channel>", "<channel|>",  "<response>",    "</response>",
                                    "<|start|>",  "<|channel|>", "<|constrain|>", "<|message|>",
                                    "<|end|>",    "<|return|>",  "<|call|>",      "｜DSML｜"};
  const out::FormatSpec* spec = out::find_tool_format(format);
  for (std::size_t i = 0; spec != nullptr && i < spec->markers.size(); ++i) {
    const std::string marker(spec->markers[i]);
    bool is_new = !marker.empty();
    for (const std::string& known : specials) is_new = is_new && known != marker;
    if (is_new) specials.push_back(marker);
  }
  // As chunks they are tokens whose text spells the marker.
  auto t = is_special ? Tokenizer::from_json(out::byte_tokenizer_json(specials, {}))
                      : Tokenizer::from_json(out::byte_tokenizer_json({}, specials));
  KVASIR_CHECK(t.has_value()) << t.error().what;
  slot = std::make_unique<Tokenizer>(*std::move(t));
  return *slot;
}

void check(const std::vector<OutputPiece>& pieces) {
  for (const OutputPiece& piece : pieces) {
    KVASIR_CHECK(is_valid_utf8(piece.text)) << "text is no UTF-8";
    if (piece.kind != OutputKind::tool_call) continue;
    const auto arguments = json::parse(piece.call.arguments);
    KVASIR_CHECK(arguments && arguments->is_object()) << piece.call.arguments;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  static const json::Value tools = *json::parse(
      R"([{"function":{"name":"f","parameters":{"properties":{"a":{"type":"string"},"b":{}}}}}])");
  OutputOptions options;
  options.format = {static_cast<ToolFormat>(data[0] % 15),
                    static_cast<ReasoningFormat>(data[1] % 6)};
  options.tools = *tools.as_array();
  options.parallel_tool_calls = (data[2] & 1) != 0;
  options.starts_in_reasoning = (data[2] & 2) != 0;
  options.splits_reasoning = (data[2] & 4) == 0;
  if ((data[2] & 8) != 0) options.stops = {"ab", "}"};
  const Tokenizer& t = tokenizer(options.format.tools, (data[2] & 16) != 0);
  auto parser = OutputParser::make(t, options);
  for (std::size_t i = 3; i < size; ++i) {
    TokenId id = data[i];
    if (data[i] >= 0xF8 && i + 1 < size) id = 256 + data[++i] % 40u;
    check(parser->push(id));
  }
  check(parser->finish());
  return 0;
}
