// Which format a chat template teaches its model: found from the markers it renders (TXT-40).
#include <array>

#include "text/output_parser.h"

namespace kvasir::text {
namespace {

class Source {
 public:
  explicit Source(std::string_view text) : text_(text) {}
  bool has(std::string_view marker) const { return text_.find(marker) != std::string_view::npos; }

  // <tool_call> with a JSON object behind it; between them stand line breaks, as characters or as
  // escapes, and the ends of string literals and of printed expressions.
  bool has_json_call(std::string_view opener) const {
    for (std::size_t at = text_.find(opener); at != std::string_view::npos;
         at = text_.find(opener, at + 1)) {
      if (begins_object(text_.substr(at + opener.size(), 80))) return true;
    }
    return false;
  }

 private:
  static bool begins_object(std::string_view rest) {
    constexpr std::string_view kBetween = " \t\r\n\\\"'~+-";
    while (!rest.empty()) {
      if (rest.starts_with("}}") || rest.starts_with("{{")) {
        rest.remove_prefix(2);
      } else if (kBetween.find(rest.front()) != std::string_view::npos || rest.starts_with("n{") ||
                 rest.starts_with("n\"") || rest.starts_with("n'")) {
        rest.remove_prefix(1);  // 'n': of an escaped line break
      } else {
        break;
      }
    }
    return rest.starts_with('{') && !rest.starts_with("{%");
  }

  std::string_view text_;
};

// From the most particular markers to those that several families share.
ToolFormat detect_tools(const Source& s) {
  if (s.has("<|channel|>") && s.has("<|message|>") && s.has("to=")) return ToolFormat::harmony;
  if (s.has("<|tool_call>") && s.has("call:")) return ToolFormat::gemma4;
  if (s.has("<|tool_calls_section_begin|>")) return ToolFormat::kimi;
  if (s.has("<｜tool▁calls▁begin｜>") || s.has("｜DSML｜")) return ToolFormat::deepseek;
  if (s.has("<minimax:tool_call>")) return ToolFormat::minimax;
  if (s.has("<|START_ACTION|>")) return ToolFormat::cohere;
  if (s.has("[TOOL_CALLS]")) return ToolFormat::mistral;
  if (s.has("<arg_key>") && s.has("<tool_call>")) return ToolFormat::glm;
  if (s.has("<function=") && s.has("<parameter=")) return ToolFormat::qwen_xml;
  if (s.has("<function name=") && s.has("<param name=")) return ToolFormat::minicpm;
  if (s.has("<|tool_call_start|>") || s.has("<|tool_list_start|>") || s.has("List of tools: [")) {
    return ToolFormat::lfm2;
  }
  const bool is_granite = s.has("<|start_of_role|>");
  if (is_granite && s.has("<|tool_call|>")) return ToolFormat::granite;
  if (s.has_json_call("<tool_call>")) return is_granite ? ToolFormat::granite : ToolFormat::hermes;
  if (s.has("<|start_header_id|>") && s.has("{\"name\": ") && s.has("\"parameters\": ")) {
    return ToolFormat::llama3;
  }
  return ToolFormat::none;
}

ReasoningFormat detect_reasoning(const Source& s) {
  if (s.has("<|channel|>") && s.has("<|message|>") && s.has("analysis")) {
    return ReasoningFormat::harmony;
  }
  if (s.has("<|channel>") && s.has("<channel|>")) return ReasoningFormat::gemma;
  if (s.has("[THINK]") && s.has("[/THINK]")) return ReasoningFormat::bracket_think;
  if (s.has("<think></think>") && s.has("<response></response>")) return ReasoningFormat::granite;
  constexpr std::array<std::string_view, 5> kClosers{"</think>", "<|END_THINKING|>",
                                                     "</seed:think>", "</mm:think>", "<think>"};
  for (const std::string_view closer : kClosers) {
    if (s.has(closer)) return ReasoningFormat::think;
  }
  return ReasoningFormat::none;
}

}  // namespace

OutputFormat detect_output_format(std::string_view template_source) {
  const Source source(template_source);
  return {.tools = detect_tools(source), .reasoning = detect_reasoning(source)};
}

}  // namespace kvasir::text
