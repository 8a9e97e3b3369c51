#include "server/endpoints/anthropic_format.h"

#include <utility>

#include "server/endpoints/openai_json.h"

namespace kvasir::server {
namespace {

bool is_thinking(text::OutputKind kind) { return kind == text::OutputKind::reasoning; }

json::Object text_block(text::OutputKind kind, std::string text, std::string signature) {
  if (!is_thinking(kind)) return {{"type", "text"}, {"text", std::move(text)}};
  return {{"type", "thinking"}, {"thinking", std::move(text)}, {"signature", std::move(signature)}};
}

// Prompt tokens count once: as input when they were computed, else as read from the cache.
json::Object usage_of(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"output_tokens", usage.completion_tokens}};
}

struct Stop {
  json::Value reason, sequence;  // null while it runs
};

Stop stop_of(const Transcript& transcript) {
  const std::optional<ChoiceEnd>& end = transcript.choices.front().end;
  if (!end) return {};
  if (end->finish_reason == "tool_calls") return {"tool_use", nullptr};
  if (end->finish_reason == "length") return {"max_tokens", nullptr};
  if (end->stop_string) return {"stop_sequence", *end->stop_string};
  return {"end_turn", nullptr};
}

}  // namespace

AnthropicFormat::AnthropicFormat(const Signer& signer) : signer_(signer), id_(new_id("msg_")) {}

json::Object AnthropicFormat::message(const Transcript& transcript) const {
  const Stop stop = stop_of(transcript);
  return {{"id", id_},
          {"type", "message"},
          {"role", "assistant"},
          {"model", transcript.model},
          {"content", content_},
          {"stop_reason", stop.reason},
          {"stop_sequence", stop.sequence},
          {"usage", usage_of(transcript.usage())}};
}

void AnthropicFormat::begin(const Transcript& transcript, std::string& out) {
  append_sse(out, "message_start",
             json::Object{{"type", "message_start"}, {"message", message(transcript)}});
  append_sse(out, "ping", json::Object{{"type", "ping"}});
}

void AnthropicFormat::append_block_event(const char* type,
                                         const char* name,
                                         json::Value value,
                                         std::string& out) const {
  json::Object data{{"type", type}, {"index", static_cast<std::uint64_t>(content_.size())}};
  if (name) data[name] = std::move(value);
  append_sse(out, type, data);
}

void AnthropicFormat::open_part(text::OutputKind kind, std::string& out) {
  text_.clear();
  append_block_event("content_block_start", "content_block", text_block(kind, "", ""), out);
}

void AnthropicFormat::add_text(text::OutputKind kind, std::string_view text, std::string& out) {
  text_ += text;
  const json::Object delta = is_thinking(kind)
                                 ? json::Object{{"type", "thinking_delta"}, {"thinking", text}}
                                 : json::Object{{"type", "text_delta"}, {"text", text}};
  append_block_event("content_block_delta", "delta", delta, out);
}

void AnthropicFormat::close_part(text::OutputKind kind, std::string& out) {
  std::string signature;
  if (is_thinking(kind)) {
    signature = signer_.sign(text_);
    append_block_event("content_block_delta", "delta",
                       json::Object{{"type", "signature_delta"}, {"signature", signature}}, out);
  }
  append_block_event("content_block_stop", nullptr, nullptr, out);
  content_.push_back(text_block(kind, std::exchange(text_, {}), std::move(signature)));
}

void AnthropicFormat::add_call(const text::ToolCall& call, std::string& out) {
  json::Object block{
      {"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", json::Object{}}};
  append_block_event("content_block_start", "content_block", block, out);
  append_block_event("content_block_delta", "delta",
                     json::Object{{"type", "input_json_delta"}, {"partial_json", call.arguments}},
                     out);
  append_block_event("content_block_stop", nullptr, nullptr, out);
  block["input"] = arguments_object(call);
  content_.push_back(std::move(block));
}

void AnthropicFormat::finish(const Transcript& transcript, std::string& out) {
  close_last(out);
  const Stop stop = stop_of(transcript);
  append_sse(out, "message_delta",
             json::Object{{"type", "message_delta"},
                          {"delta", json::Object{{"stop_reason", stop.reason},
                                                 {"stop_sequence", stop.sequence}}},
                          {"usage", usage_of(transcript.usage())}});
  append_sse(out, "message_stop", json::Object{{"type", "message_stop"}});
}

void AnthropicFormat::error(const ApiError& error, std::string& out) {
  append_sse(out, "error", error_body(error, error_shape()));
}

// The comment of every stream, for who reads it, and the event that Anthropic's clients expect.
void AnthropicFormat::keep_alive(const Transcript& transcript, std::string& out) {
  ApiFormat::keep_alive(transcript, out);
  append_sse(out, "ping", json::Object{{"type", "ping"}});
}

json::Value AnthropicFormat::whole(const Transcript& transcript) {
  std::string unsent;
  add_all(transcript.choices.front(), unsent);
  close_last(unsent);
  return message(transcript);
}

}  // namespace kvasir::server
