// {"name": …, "parameters": {…}} as the message itself, or behind <|python_tag|>; several are
// separated by ';'. Built-in tools: <|python_tag|>name.call(k="v"). Llama 3.1 and later.
#include <array>
#include <optional>

#include "json/json.h"
#include "text/output/json_calls.h"
#include "text/output/python_calls.h"
#include "text/output/tool_format.h"

namespace kvasir::text::out {
namespace {

enum Slot : std::uint8_t { kObject, kCode };

constexpr std::array<std::string_view, 3> kMarkers{"<|python_tag|>", "<|eom_id|>", "<|eot_id|>"};
constexpr std::array kSteps{step::marker(0).or_else(1),
                            step::space(),
                            step::json(kObject).or_else(8),
                            step::emit(),
                            step::separators(),
                            /*5*/ step::json(kObject).or_else(6).to(3),
                            step::marker(1).or_else(7).to(10),
                            step::marker(2).or_else(10).to(10),
                            step::until_marker(bit(1) | bit(2), kCode).or_end().to(9),
                            step::emit(),
                            /*10*/ step::end()};

std::size_t skip_space(std::string_view text, std::size_t at) {
  while (at < text.size() && is_space(text[at])) ++at;
  return at;
}

// A complete string literal at `at`, decoded; `at` goes past it. None: it isn't complete.
std::optional<std::string> string_at(std::string_view text, std::size_t& at) {
  std::size_t end = at + 1;
  while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
  if (end >= text.size()) return std::nullopt;
  const auto value = json::parse(text.substr(at, end + 1 - at));
  at = end + 1;
  return value && value->is_string() ? *value->as_string() : std::string();
}

// The first member says it: a call begins with its name, or with one of few other words.
bool is_hopeless(std::string_view json, const ToolSet& tools) {
  if (!json.starts_with('{')) return false;
  std::size_t at = skip_space(json, 1);
  if (at >= json.size()) return false;
  if (json[at] != '"') return true;
  const auto key = string_at(json, at);
  if (!key) return false;
  if (*key == "name") {
    at = skip_space(json, at);
    if (at >= json.size()) return false;
    at = skip_space(json, at + 1);  // past the colon
    if (at >= json.size()) return false;
    if (json[at] != '"') return true;
    const auto name = string_at(json, at);
    return name && !tools.has(*name);
  }
  return *key != "type" && *key != "function" && *key != "parameters" && *key != "arguments" &&
         *key != "id";
}

bool build(const BuildInput& in, std::vector<ParsedCall>& calls) {
  if (in.captures.front().slot == kCode) {
    return build_python_calls(in.spelled(kCode), in.tools, calls);
  }
  const std::string object = in.spelled(kObject);
  const auto value = json::parse(object, {.max_depth = kMaxJsonDepth});
  if (!value) return false;
  // An answer may be an object with a name in it; only one with arguments is a call.
  const json::Value* function = value->find("function");
  const json::Value& call = function != nullptr && function->is_object() ? *function : *value;
  const bool has_arguments =
      call.find("parameters") != nullptr || call.find("arguments") != nullptr;
  return has_arguments && build_json_calls(object, in.tools, calls);
}

}  // namespace

constinit const FormatSpec kLlama3{.format = ToolFormat::llama3,
                                   .name = "llama3",
                                   .markers = kMarkers,
                                   .openers = bit(0),
                                   .region = {kSteps, build, is_hopeless},
                                   .opens_at_brace = true};

}  // namespace kvasir::text::out
