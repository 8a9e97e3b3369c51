// GET /v1/models, /v1/models/{id} (SRV-15).
#include <algorithm>
#include <ctime>

#include "hub/library.h"
#include "server/endpoints/endpoint.h"

namespace kvasir::server {
namespace {

json::Object served_model(const ServerState& state, const std::string& id) {
  const ModelSummary& model = state.engine.load()->summary();
  static const std::int64_t started_s = std::time(nullptr);
  return {{"id", id},
          {"object", "model"},
          {"created", started_s},
          {"owned_by", "kvasir"},
          {"context_window", model.context_length},
          {"reasoning", model.output.reasoning != text::ReasoningFormat::none},
          {"vision", false},
          {"tools", model.output.tools != text::ToolFormat::none},
          {"chat", model.embedding_width == 0 && model.has_chat_template()},
          {"embeddings", model.embedding_width > 0},
          {"backend", model.backend},
          {"weight_bytes", model.weight_bytes}};
}

json::Object local_model(const hub::ModelEntry& entry) {
  const std::string id = entry.repo.empty() ? entry.path.string() : entry.repo;
  return {{"id", id},
          {"object", "model"},
          {"created", 0},
          {"owned_by", "local"},
          {"context_window", nullptr},
          {"reasoning", false},
          {"vision", false},
          {"tools", false}};
}

json::Array all_models(const ServerState& state) {
  json::Array models{served_model(state, state.served_id())};
  for (const std::string& alias : state.options.aliases)
    models.push_back(served_model(state, alias));
  if (!state.library) return models;
  for (const hub::ModelEntry& entry : *state.library->models())
    models.push_back(local_model(entry));
  return models;
}

}  // namespace

HttpReply list_models(ServerState& state, const HttpRequest&, std::string_view) {
  return json_reply(json::Object{{"object", "list"}, {"data", all_models(state)}});
}

// The object itself, and a list of it for clients that always read `data`.
HttpReply get_model(ServerState& state, const HttpRequest&, std::string_view id) {
  for (const json::Value& model : all_models(state)) {
    if (model.string_or("id", "") != id) continue;
    json::Object out = *model.as_object();
    out["data"] = json::Array{model};
    return json_reply(out);
  }
  ApiError error = bad_request("the model '" + std::string(id) + "' does not exist", "model");
  error.status = 404;
  error.code = "model_not_found";
  return error_reply(error, ErrorShape::openai);
}

}  // namespace kvasir::server
