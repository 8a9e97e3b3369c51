// POST /v1/responses; GET and DELETE /v1/responses/{id} (SRV-13, SRV-42).
#include <utility>

#include "server/endpoints/call_names.h"
#include "server/endpoints/endpoint.h"
#include "server/endpoints/openai_json.h"
#include "server/endpoints/responses_format.h"
#include "server/endpoints/responses_request.h"

namespace kvasir::server {
namespace {

// The answer as a chat message that later requests go on from.
json::Object answer_message(const ChoiceTranscript& choice) {
  json::Object message{{"role", "assistant"}, {"content", choice.content()}};
  if (std::string reasoning = choice.reasoning(); !reasoning.empty()) {
    message["reasoning"] = reasoning;
    message["reasoning_content"] = std::move(reasoning);
  }
  json::Array calls;
  for (const text::ToolCall& call : choice.tool_calls())
    calls.push_back(call_entry(call.id, call.name, call.arguments));
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  return message;
}

ResponseFormat::Keep keep_in(ResponseStore& store, std::string id, json::Array conversation) {
  return [&store, id = std::move(id), conversation = std::move(conversation)](
             const json::Value& response, const ChoiceTranscript& choice) {
    StoredResponse stored{response, conversation};
    stored.messages.push_back(answer_message(choice));
    store.put(id, std::move(stored), std::chrono::steady_clock::now());
  };
}

}  // namespace

PlanOrError plan_response(ServerState& state, const json::Value& body) {
  auto model = echoed_model(state, body);
  if (auto* error = std::get_if<ApiError>(&model)) return *std::move(error);
  Plan plan;
  plan.model = std::get<std::string>(std::move(model));
  BodyReader in(body);
  ResponseRequest request = read_response_request(in, state, plan.warnings);
  if (!in.ok()) return in.error();
  plan.stream = request.stream;
  const std::string id = new_id("resp_");
  request.head["id"] = id;
  ResponseFormat::Keep keep;
  if (request.is_stored) keep = keep_in(state.responses, id, std::move(request.conversation));
  plan.format = std::make_unique<ResponseFormat>(std::move(request.head), std::move(keep));
  plan.requests.push_back(std::move(request.generate));
  return plan;
}

HttpReply get_response(ServerState& state, const HttpRequest&, std::string_view id) {
  const auto stored = state.responses.get(id, std::chrono::steady_clock::now());
  if (!stored) return error_reply(response_not_found(id), ErrorShape::openai);
  return json_reply(stored->response);
}

HttpReply delete_response(ServerState& state, const HttpRequest&, std::string_view id) {
  if (!state.responses.erase(id)) return error_reply(response_not_found(id), ErrorShape::openai);
  return json_reply(json::Object{{"id", id}, {"object", "response"}, {"deleted", true}});
}

}  // namespace kvasir::server
