// POST /v1/messages and /v1/messages/count_tokens (SRV-12, SRV-40, SRV-41).
#include <utility>

#include "server/endpoints/anthropic_format.h"
#include "server/endpoints/anthropic_request.h"
#include "server/endpoints/endpoint.h"

namespace kvasir::server {

PlanOrError plan_message(ServerState& state, const json::Value& body) {
  auto model = echoed_model(state, body);
  if (auto* error = std::get_if<ApiError>(&model)) return *std::move(error);
  Plan plan;
  plan.model = std::get<std::string>(std::move(model));
  GenerateRequest request;
  BodyReader in(body);
  plan.stream = read_anthropic_sampling(in, *state.engine.load(), request);
  read_anthropic_prompt(in, state, request, plan.warnings);
  if (!in.ok()) return in.error();
  plan.format = std::make_unique<AnthropicFormat>(state.signer);
  plan.requests.push_back(std::move(request));
  return plan;
}

// What usage's input and cache tokens of the same message would add up to (C34).
HttpReply count_message_tokens(ServerState& state, const HttpRequest& request, std::string_view) {
  const auto refuse = [](const ApiError& error) {
    return error_reply(error, ErrorShape::anthropic);
  };
  auto body = parse_body(request);
  if (auto* error = std::get_if<ApiError>(&body)) return refuse(*error);
  const json::Value& value = std::get<json::Value>(body);
  auto model = echoed_model(state, value);
  if (auto* error = std::get_if<ApiError>(&model)) return refuse(*error);
  BodyReader in(value);
  GenerateRequest prompt;
  std::vector<std::string> unused_warnings;
  read_anthropic_prompt(in, state, prompt, unused_warnings);
  if (!in.ok()) return refuse(in.error());
  const auto n_tokens = state.engine.load()->count_tokens(prompt);
  if (!n_tokens) return refuse(to_api_error(n_tokens.error()));
  return json_reply(json::Object{{"input_tokens", *n_tokens}});
}

}  // namespace kvasir::server
