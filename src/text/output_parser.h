// What a model writes → reasoning, content and tool calls (TXT-40…53), cut at stop strings
// (TXT-60…62). Takes token ids, so that markers which are special tokens are known by id;
// detokenizes itself. Nothing emitted is ever withdrawn; streamed pieces joined equal the
// unstreamed result. One parser is one stream: not for two threads at once. OutputFormat is a plain
// value.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "json/json.h"
#include "text/tokenizer.h"

namespace kvasir::text {

enum class ToolFormat : std::uint8_t {
  none,
  gemma4,
  hermes,
  qwen_xml,
  minicpm,
  llama3,
  mistral,
  deepseek,
  kimi,
  glm,
  minimax,
  cohere,
  granite,
  lfm2,
  harmony
};

enum class ReasoningFormat : std::uint8_t {
  none,
  think,          // <think> … </think>
  bracket_think,  // [THINK] … [/THINK]
  gemma,          // the thought channel
  harmony,        // the analysis channel
  granite         // <think>/<response> pairs
};

struct OutputFormat {
  ToolFormat tools = ToolFormat::none;
  ReasoningFormat reasoning = ReasoningFormat::none;
};

std::string_view name_of(ToolFormat format) noexcept;  // the ids of TXT-41; "none"
std::string_view name_of(ReasoningFormat format) noexcept;
// Of --tool-parser. Error: invalid_argument listing the names.
Result<ToolFormat> parse_tool_format(std::string_view name);

// Chosen from the chat template's own markers (TXT-40), never by a model's name.
OutputFormat detect_output_format(std::string_view template_source);
// The prompt ends inside an open reasoning block (TXT-51).
bool starts_in_reasoning(ReasoningFormat format, std::string_view rendered_prompt);

struct ToolCall {
  std::uint32_t index = 0;  // 0, 1, 2… of the message
  std::string id;           // "call_" + 24 base-62 characters; mistral: 9
  std::string name;
  std::string arguments;  // JSON text of an object, keys in emitted order
};

enum class OutputKind : std::uint8_t { content, reasoning, tool_call };

struct OutputPiece {
  OutputKind kind = OutputKind::content;
  std::string text;    // content and reasoning
  ToolCall call = {};  // tool_call: complete
};

struct OutputOptions {
  OutputFormat format;
  json::Array tools;  // as in the request, OpenAI's shape; empty: calls are not parsed
  bool parallel_tool_calls = true;  // false: the output ends behind the first call (TXT-44)
  bool starts_in_reasoning = false;
  bool splits_reasoning = true;  // false: reasoning stays in the content, markers included
  std::vector<std::string> stops;
  std::uint64_t id_seed = 0;  // of the call ids
};

class OutputParser {
 public:
  // Errors: those of StopMatcher::make.
  static Result<OutputParser> make(const Tokenizer& tokenizer, OutputOptions options);
  OutputParser(OutputParser&&) noexcept;
  OutputParser& operator=(OutputParser&&) noexcept;
  ~OutputParser();

  // What became certain; often empty. After is_ended() nothing more comes.
  std::vector<OutputPiece> push(TokenId id);
  // The rest, at the end of the generation. Once, last; also after is_ended().
  std::vector<OutputPiece> finish();

  bool is_ended() const noexcept;  // a stop string matched, or the one allowed call is complete
  // The stop string that matched.
  std::optional<std::string> matched_stop() const;
  std::uint32_t n_tool_calls() const noexcept;
  std::uint64_t n_reasoning_tokens() const noexcept;

 private:
  struct State;
  explicit OutputParser(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kvasir::text
