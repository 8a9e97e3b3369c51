#include "server/endpoints/ollama_format.h"

#include <array>
#include <cmath>
#include <ctime>
#include <utility>

#include "server/endpoints/parted_format.h"

namespace kvasir::server {
namespace {

json::Object call_of(const text::ToolCall& call) {
  return {{"id", call.id},
          {"function",
           json::Object{
               {"index", call.index}, {"name", call.name}, {"arguments", arguments_object(call)}}}};
}

std::int64_t nanoseconds(double ms) { return static_cast<std::int64_t>(std::llround(ms * 1e6)); }

void append_line(std::string& out, const json::Value& value) {
  out += json::write(value);
  out += '\n';
}

}  // namespace

std::string rfc3339(std::int64_t unix_s) {
  const std::time_t time = unix_s;
  std::tm utc{};
  gmtime_r(&time, &utc);
  std::array<char, 32> text{};
  const std::size_t n = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return {text.data(), n};
}

json::Object OllamaFormat::object_of(const Transcript& transcript, Parts parts) const {
  json::Object out{{"model", transcript.model}, {"created_at", rfc3339(transcript.created_s)}};
  const bool is_chat = shape_ == OllamaShape::chat;
  json::Object said;
  if (is_chat) said["role"] = "assistant";
  said[is_chat ? "content" : "response"] = std::move(parts.content);
  if (!parts.thinking.empty()) said["thinking"] = std::move(parts.thinking);
  if (!parts.tool_calls.empty()) said["tool_calls"] = std::move(parts.tool_calls);
  if (is_chat) {
    out["message"] = std::move(said);
  } else {
    for (auto& [name, value] : said) out[name] = std::move(value);
  }
  out["done"] = false;
  return out;
}

json::Object OllamaFormat::last_object(const Transcript& transcript, Parts parts) const {
  json::Object out = object_of(transcript, std::move(parts));
  const std::optional<ChoiceEnd>& end = transcript.choices.front().end;
  const bool is_cut = end && end->finish_reason == "length";
  out["done"] = true;
  out["done_reason"] = is_load_ ? "load" : is_cut ? "length" : "stop";
  if (is_load_) return out;
  const Usage usage = transcript.usage();
  const double queue_ms = end ? end->outcome.stats.queue_ms : 0;
  out["total_duration"] = nanoseconds(queue_ms + usage.prompt_ms + usage.predicted_ms);
  out["load_duration"] = 0;
  out["prompt_eval_count"] = usage.prompt_tokens;
  out["prompt_eval_duration"] = nanoseconds(usage.prompt_ms);
  out["eval_count"] = usage.completion_tokens;
  out["eval_duration"] = nanoseconds(usage.predicted_ms);
  return out;
}

void OllamaFormat::begin(const Transcript&, std::string&) {}

void OllamaFormat::event(const Transcript& transcript, const StreamEvent& event, std::string& out) {
  if (is_load_) return;
  for (const text::OutputPiece& piece : event.pieces) {
    Parts parts;
    if (piece.kind == text::OutputKind::tool_call)
      parts.tool_calls.push_back(call_of(piece.call));
    else if (piece.text.empty())
      continue;
    else
      (piece.kind == text::OutputKind::content ? parts.content : parts.thinking) = piece.text;
    append_line(out, object_of(transcript, std::move(parts)));
  }
}

void OllamaFormat::finish(const Transcript& transcript, std::string& out) {
  append_line(out, last_object(transcript, {}));
}

void OllamaFormat::error(const ApiError& error, std::string& out) {
  append_line(out, error_body(error, error_shape()));
}

// Lines have no comments: an empty piece says as little.
void OllamaFormat::keep_alive(const Transcript& transcript, std::string& out) {
  append_line(out, object_of(transcript, {}));
}

json::Value OllamaFormat::whole(const Transcript& transcript) {
  Parts parts;
  const ChoiceTranscript& choice = transcript.choices.front();
  if (!is_load_) {
    parts.content = choice.content();
    parts.thinking = choice.reasoning();
    for (const text::ToolCall& call : choice.tool_calls())
      parts.tool_calls.push_back(call_of(call));
  }
  return last_object(transcript, std::move(parts));
}

}  // namespace kvasir::server
