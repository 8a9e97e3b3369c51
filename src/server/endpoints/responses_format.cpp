#include "server/endpoints/responses_format.h"

#include <utility>

#include "server/endpoints/openai_json.h"

namespace kvasir::server {
namespace {

bool is_reasoning(text::OutputKind kind) { return kind == text::OutputKind::reasoning; }

json::Object part_of(text::OutputKind kind, const std::string& text) {
  if (is_reasoning(kind)) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", json::Array{}},
          {"logprobs", json::Array{}}};
}

json::Object call_item(const std::string& id,
                       const text::ToolCall& call,
                       const char* status,
                       const std::string& arguments) {
  return {{"id", id},           {"type", "function_call"}, {"status", status},
          {"call_id", call.id}, {"name", call.name},       {"arguments", arguments}};
}

json::Object usage_of(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details",
           json::Object{{"cached_tokens", usage.cached_tokens}, {"cache_write_tokens", 0}}},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details", json::Object{{"reasoning_tokens", usage.reasoning_tokens}}},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

// OpenAI has a closed list of codes here; ours goes into `type`.
json::Object failure_of(const ApiError& error) {
  const char* code = error.status == 429   ? "rate_limit_exceeded"
                     : error.status >= 500 ? "server_error"
                                           : "invalid_prompt";
  return {{"code", code}, {"message", error.message}, {"type", error.code}};
}

}  // namespace

ResponseFormat::ResponseFormat(json::Object head, Keep keep)
    : response_(std::move(head)), keep_(std::move(keep)) {}

void ResponseFormat::take_head(const Transcript& transcript) {
  response_["created_at"] = transcript.created_s;
  response_["model"] = transcript.model;
  response_["status"] = "in_progress";
  response_["output"] = json::Array{};
}

void ResponseFormat::append_event(const char* type, json::Object fields, std::string& out) {
  json::Object data{{"type", type}, {"sequence_number", n_events_++}};
  for (auto& [name, value] : fields) data.push_back(name, std::move(value));
  append_sse(out, type, data);
}

void ResponseFormat::append_response_event(const char* type, std::string& out) {
  append_event(type, {{"response", response_}}, out);
}

json::Object ResponseFormat::item_fields(json::Value item) const {
  return {{"output_index", static_cast<std::uint64_t>(output_.size())}, {"item", std::move(item)}};
}

json::Object ResponseFormat::part_fields() const {
  return {{"item_id", item_id_},
          {"output_index", static_cast<std::uint64_t>(output_.size())},
          {"content_index", 0}};
}

json::Object ResponseFormat::text_item(text::OutputKind kind,
                                       const char* status,
                                       bool has_part) const {
  json::Array content;
  if (has_part) content.push_back(part_of(kind, text_));
  if (is_reasoning(kind)) {
    return {{"id", item_id_},
            {"type", "reasoning"},
            {"status", status},
            {"summary", json::Array{}},
            {"content", std::move(content)}};
  }
  return {{"id", item_id_},
          {"type", "message"},
          {"status", status},
          {"role", "assistant"},
          {"content", std::move(content)}};
}

void ResponseFormat::begin(const Transcript& transcript, std::string& out) {
  take_head(transcript);
  append_response_event("response.created", out);
  append_response_event("response.in_progress", out);
}

void ResponseFormat::open_part(text::OutputKind kind, std::string& out) {
  text_.clear();
  item_id_ = new_id(is_reasoning(kind) ? "rs_" : "msg_");
  append_event("response.output_item.added",
               item_fields(text_item(kind, "in_progress", /*has_part=*/false)), out);
  json::Object fields = part_fields();
  fields["part"] = part_of(kind, "");
  append_event("response.content_part.added", std::move(fields), out);
}

void ResponseFormat::add_text(text::OutputKind kind, std::string_view text, std::string& out) {
  text_ += text;
  json::Object fields = part_fields();
  fields["delta"] = text;
  if (is_reasoning(kind)) {
    append_event("response.reasoning_text.delta", std::move(fields), out);
    return;
  }
  fields["logprobs"] = json::Array{};
  append_event("response.output_text.delta", std::move(fields), out);
}

void ResponseFormat::close_part(text::OutputKind kind, std::string& out) {
  json::Object done = part_fields();
  done["text"] = text_;
  if (!is_reasoning(kind)) done["logprobs"] = json::Array{};
  append_event(is_reasoning(kind) ? "response.reasoning_text.done" : "response.output_text.done",
               std::move(done), out);
  json::Object part_done = part_fields();
  part_done["part"] = part_of(kind, text_);
  append_event("response.content_part.done", std::move(part_done), out);
  json::Object item = text_item(kind, last_status_, /*has_part=*/true);
  append_event("response.output_item.done", item_fields(item), out);
  output_.push_back(std::move(item));
}

void ResponseFormat::add_call(const text::ToolCall& call, std::string& out) {
  item_id_ = new_id("fc_");
  append_event("response.output_item.added",
               item_fields(call_item(item_id_, call, "in_progress", "")), out);
  json::Object fields{{"item_id", item_id_},
                      {"output_index", static_cast<std::uint64_t>(output_.size())}};
  json::Object delta = fields;
  delta["delta"] = call.arguments;
  append_event("response.function_call_arguments.delta", std::move(delta), out);
  fields["name"] = call.name;
  fields["arguments"] = call.arguments;
  append_event("response.function_call_arguments.done", std::move(fields), out);
  json::Object item = call_item(item_id_, call, "completed", call.arguments);
  append_event("response.output_item.done", item_fields(item), out);
  output_.push_back(std::move(item));
}

// Closes what is open and completes the response object.
json::Value ResponseFormat::end_response(const Transcript& transcript, std::string& out) {
  const ChoiceTranscript& choice = transcript.choices.front();
  const bool is_cut = choice.end && choice.end->finish_reason == "length";
  last_status_ = is_cut ? "incomplete" : "completed";
  close_last(out);
  response_["status"] = last_status_;
  if (is_cut) response_["incomplete_details"] = json::Object{{"reason", "max_output_tokens"}};
  response_["output"] = output_;
  response_["usage"] = usage_of(transcript.usage());
  if (keep_) keep_(response_, choice);
  return response_;
}

void ResponseFormat::finish(const Transcript& transcript, std::string& out) {
  end_response(transcript, out);
  const std::string type = std::string("response.") + last_status_;
  append_response_event(type.c_str(), out);
}

void ResponseFormat::error(const ApiError& error, std::string& out) {
  if (open_kind()) output_.push_back(text_item(*open_kind(), "incomplete", /*has_part=*/true));
  response_["status"] = "failed";
  response_["error"] = failure_of(error);
  response_["output"] = output_;
  append_response_event("response.failed", out);
}

json::Value ResponseFormat::whole(const Transcript& transcript) {
  std::string unsent;
  take_head(transcript);
  add_all(transcript.choices.front(), unsent);
  return end_response(transcript, unsent);
}

}  // namespace kvasir::server
