// What an endpoint is: a function from a request to a reply, or from a JSON body to the plan of a
// generation. routes.cpp lists them all. Endpoints run on worker threads unless a route says
// otherwise, know nothing of sockets, and are tested as functions.
#pragma once

#include <string_view>
#include <variant>

#include "json/json.h"
#include "server/endpoints/api_error.h"
#include "server/endpoints/generation_job.h"
#include "server/endpoints/state.h"
#include "server/http/exchange.h"

namespace kvasir::server {

// Of a route with a trailing '*', `rest` is what stood in its place.
using ReplyFn = HttpReply (*)(ServerState& state,
                              const HttpRequest& request,
                              std::string_view rest);

// Replies by itself, later. Never blocks.
using AsyncFn = void (*)(ServerState& state, const std::shared_ptr<Exchange>& exchange);

using PlanOrError = std::variant<Plan, ApiError>;
using PlanFn = PlanOrError (*)(ServerState& state, const json::Value& body);

// The request's body as a JSON object: SRV-1 and SRV-2's texts; 415 for what cannot be one.
std::variant<json::Value, ApiError> parse_body(const HttpRequest& request);
HttpReply json_reply(const json::Value& value, int status = 200);

// `model` of a request: what to echo, or 404 model_not_found (SRV, strict_model).
std::variant<std::string, ApiError> echoed_model(const ServerState& state, const json::Value& body);

// OpenAI (chat_completions.cpp, completions.cpp), Anthropic (messages.cpp), Responses
// (responses.cpp) and Ollama (ollama.cpp).
PlanOrError plan_chat_completion(ServerState& state, const json::Value& body);
PlanOrError plan_completion(ServerState& state, const json::Value& body);
PlanOrError plan_message(ServerState& state, const json::Value& body);
PlanOrError plan_response(ServerState& state, const json::Value& body);
PlanOrError plan_ollama_chat(ServerState& state, const json::Value& body);
PlanOrError plan_ollama_generate(ServerState& state, const json::Value& body);

HttpReply count_message_tokens(ServerState& state, const HttpRequest& request, std::string_view);
HttpReply get_response(ServerState& state, const HttpRequest& request, std::string_view id);
HttpReply delete_response(ServerState& state, const HttpRequest& request, std::string_view id);
HttpReply ollama_tags(ServerState& state, const HttpRequest& request, std::string_view);
HttpReply ollama_show(ServerState& state, const HttpRequest& request, std::string_view);
HttpReply ollama_version(ServerState& state, const HttpRequest& request, std::string_view);

// models.cpp
HttpReply list_models(ServerState& state, const HttpRequest& request, std::string_view);
HttpReply get_model(ServerState& state, const HttpRequest& request, std::string_view id);

// text.cpp: llama-server's shapes
HttpReply tokenize(ServerState& state, const HttpRequest& request, std::string_view);
HttpReply detokenize(ServerState& state, const HttpRequest& request, std::string_view);
HttpReply apply_template(ServerState& state, const HttpRequest& request, std::string_view);

// web_chat.cpp (SRV-22)
HttpReply web_chat(ServerState& state, const HttpRequest& request, std::string_view);
HttpReply web_asset(ServerState& state, const HttpRequest& request, std::string_view name);

// embeddings.cpp: run on a worker, reply when the engine has run the inputs
void embeddings(ServerState& state, const std::shared_ptr<Exchange>& exchange);
void ollama_embed(ServerState& state, const std::shared_ptr<Exchange>& exchange);
void ollama_embeddings(ServerState& state, const std::shared_ptr<Exchange>& exchange);

// introspection.cpp
HttpReply health(ServerState& state, const HttpRequest& request, std::string_view);
HttpReply metrics(ServerState& state, const HttpRequest& request, std::string_view);
HttpReply stats(ServerState& state, const HttpRequest& request, std::string_view);
HttpReply fit_report(ServerState& state, const HttpRequest& request, std::string_view);
HttpReply props(ServerState& state, const HttpRequest& request, std::string_view);
HttpReply slots(ServerState& state, const HttpRequest& request, std::string_view);
HttpReply version(ServerState& state, const HttpRequest& request, std::string_view);
HttpReply library(ServerState& state, const HttpRequest& request, std::string_view);

// downloads.cpp
HttpReply downloads(ServerState& state, const HttpRequest& request, std::string_view);
HttpReply admin_download(ServerState& state, const HttpRequest& request, std::string_view);
HttpReply admin_cancel_download(ServerState& state,
                                const HttpRequest& request,
                                std::string_view id);

// admin.cpp
// These two reply when no row runs any more.
void admin_drain(ServerState& state, const std::shared_ptr<Exchange>& exchange);
HttpReply admin_flush_cache(ServerState& state, const HttpRequest& request, std::string_view rest);
void admin_empty_cache(ServerState& state, const std::shared_ptr<Exchange>& exchange);
HttpReply admin_resume(ServerState& state, const HttpRequest& request, std::string_view);
HttpReply admin_shutdown(ServerState& state, const HttpRequest& request, std::string_view);

}  // namespace kvasir::server
