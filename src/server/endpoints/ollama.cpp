// POST /api/chat, /api/generate: Ollama's API.
#include <utility>

#include "server/endpoints/endpoint.h"
#include "server/endpoints/ollama_format.h"
#include "server/endpoints/ollama_request.h"

namespace kvasir::server {
namespace {

using ReadFn = OllamaRequest (*)(BodyReader&, const ServerState&, std::vector<std::string>&);

PlanOrError plan(ServerState& state, const json::Value& body, OllamaShape shape, ReadFn read) {
  auto model = echoed_model(state, body);
  if (auto* error = std::get_if<ApiError>(&model)) return *std::move(error);
  Plan plan;
  plan.model = std::get<std::string>(std::move(model));
  BodyReader in(body);
  OllamaRequest request = read(in, state, plan.warnings);
  if (!in.ok()) return in.error();
  plan.stream = request.stream;
  plan.format = std::make_unique<OllamaFormat>(shape, request.is_load);
  plan.requests.push_back(std::move(request.generate));
  return plan;
}

}  // namespace

PlanOrError plan_ollama_chat(ServerState& state, const json::Value& body) {
  return plan(state, body, OllamaShape::chat, read_ollama_chat);
}

PlanOrError plan_ollama_generate(ServerState& state, const json::Value& body) {
  return plan(state, body, OllamaShape::generate, read_ollama_generate);
}

}  // namespace kvasir::server
