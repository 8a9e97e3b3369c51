// The parts of a request that OpenAI-shaped bodies share (SRV-30): messages, tools, sampling,
// stops, output forms. Pure functions; errors name the field.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "json/json.h"
#include "server/endpoints/endpoint.h"

namespace kvasir::server {

// Reads fields of one body until one is wrong; the first error stays. Null counts as absent.
class BodyReader {
 public:
  explicit BodyReader(const json::Value& body) : body_(body) {}

  bool ok() const noexcept { return !error_.has_value(); }
  ApiError error() const { return *error_; }
  void fail(std::string message, std::string_view field);
  void fail(ApiError error);
  void fail(const Error& error);  // the field is the text's first word

  const json::Value* find(
      std::string_view field) const noexcept;  // null: absent, or already failed
  bool boolean(std::string_view field, bool other);
  std::int64_t integer(std::string_view field,
                       std::int64_t other,
                       std::int64_t low,
                       std::int64_t high);
  std::string string(std::string_view field, std::string_view other);
  const json::Object* object(std::string_view field);
  const json::Array* array(std::string_view field);
  std::vector<std::string> strings(std::string_view field);  // one string, or a list of them
  const json::Value& body() const noexcept { return body_; }

 private:
  const json::Value& body_;
  std::optional<ApiError> error_;
};

// temperature … seed, max_tokens, stop, cache, timeout_ms: what chat and completions share.
RequestSampling read_sampling(BodyReader& in,
                              const Engine& engine,
                              Surface surface,
                              GenerateRequest& out);
// tools, tool_choice, parallel_tool_calls (TXT-44), after the messages are read. A choice that only
// a grammar could enforce becomes an instruction with a warning; so does strict, without one.
void read_tools(BodyReader& in, GenerateRequest& out, std::vector<std::string>& warnings);
// The forms of SAMP-50 that only a grammar could serve (SAMP-57).
void refuse_grammars(BodyReader& in);
// That, and response_format: no grammar enforces it here, so it becomes an instruction with a
// warning, or 400 when strict (SAMP-55).
void read_output_form(BodyReader& in, GenerateRequest& out, std::vector<std::string>& warnings);
// chat_template_kwargs and reasoning_effort over the server's own (TXT-28, 52); before the others
// add theirs.
void read_template_variables(BodyReader& in, const ServerState& state, GenerateRequest& out);
// Past reasoning under both of its names (TXT-53).
void add_instruction(json::Array& messages, const std::string& text);
json::Array with_both_reasoning_names(json::Array messages);

}  // namespace kvasir::server
