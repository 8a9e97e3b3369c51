// The routes, as data, and who runs them. A request comes in on an I/O thread; what parses or
// renders goes to a worker.
#include "server/endpoints/routes.h"

#include <array>
#include <string>
#include <utility>

#include "base/log.h"
#include "server/detail/worker_pool.h"
#include "server/endpoints/endpoint.h"

namespace kvasir::server {
namespace {

enum class Where : std::uint8_t { inline_, worker };

struct Route {
  std::string_view method;
  std::string_view path;  // a trailing '*' stands for one or more characters
  std::variant<ReplyFn, PlanFn, AsyncFn> run;
  ErrorShape shape = ErrorShape::openai;
  Where where = Where::worker;
  bool needs_engine = true;
};

constexpr Route quick(std::string_view method, std::string_view path, ReplyFn run) {
  return {method, path, run, ErrorShape::openai, Where::inline_, true};
}
// Answers while the model still loads.
constexpr Route always(std::string_view method, std::string_view path, ReplyFn run) {
  return {method, path, run, ErrorShape::openai, Where::inline_, false};
}
constexpr Route work(std::string_view method,
                     std::string_view path,
                     ReplyFn run,
                     ErrorShape shape = ErrorShape::openai) {
  return {method, path, run, shape, Where::worker, true};
}
constexpr Route generation(std::string_view path, PlanFn run, ErrorShape shape) {
  return {"POST", path, run, shape, Where::worker, true};
}
constexpr Route later(std::string_view path, AsyncFn run, ErrorShape shape) {
  return {"POST", path, run, shape, Where::worker, true};
}

constexpr std::array kRoutes{
    generation("/v1/chat/completions", plan_chat_completion, ErrorShape::openai),
    generation("/chat/completions", plan_chat_completion, ErrorShape::openai),
    generation("/v1/completions", plan_completion, ErrorShape::openai),
    generation("/completions", plan_completion, ErrorShape::openai),
    generation("/v1/messages", plan_message, ErrorShape::anthropic),
    work("POST", "/v1/messages/count_tokens", count_message_tokens, ErrorShape::anthropic),
    generation("/v1/responses", plan_response, ErrorShape::openai),
    quick("GET", "/v1/responses/*", get_response),
    quick("DELETE", "/v1/responses/*", delete_response),
    generation("/api/chat", plan_ollama_chat, ErrorShape::ollama),
    generation("/api/generate", plan_ollama_generate, ErrorShape::ollama),
    later("/api/embed", ollama_embed, ErrorShape::ollama),
    later("/api/embeddings", ollama_embeddings, ErrorShape::ollama),
    work("GET", "/api/tags", ollama_tags, ErrorShape::ollama),
    work("POST", "/api/show", ollama_show, ErrorShape::ollama),
    always("GET", "/api/version", ollama_version),
    later("/v1/embeddings", embeddings, ErrorShape::openai),
    quick("GET", "/v1/models", list_models),
    quick("GET", "/v1/models/*", get_model),
    work("POST", "/tokenize", tokenize),
    work("POST", "/detokenize", detokenize),
    work("POST", "/apply-template", apply_template),
    always("GET", "/health", health),
    always("GET", "/v1/health", health),
    always("GET", "/metrics", metrics),
    always("GET", "/version", version),
    quick("GET", "/stats", stats),
    work("GET", "/fit", fit_report),
    quick("GET", "/props", props),
    quick("GET", "/slots", slots),
    always("GET", "/library", library),
    always("GET", "/downloads", downloads),
    Route{"POST", "/admin/drain", admin_drain, ErrorShape::openai, Where::inline_, true},
    quick("POST", "/admin/resume", admin_resume),
    quick("POST", "/admin/cache/flush", admin_flush_cache),
    Route{"DELETE", "/admin/cache", admin_empty_cache, ErrorShape::openai, Where::inline_, true},
    always("POST", "/admin/shutdown", admin_shutdown),
    always("POST", "/admin/downloads", admin_download),
    always("DELETE", "/admin/downloads/*", admin_cancel_download),
    always("GET", "/", web_chat),
    always("GET", "/chat", web_chat),
    always("GET", "/assets/*", web_asset),
};

bool matches(const Route& route, std::string_view path, std::string_view& rest) {
  if (!route.path.ends_with('*')) return route.path == path;
  const std::string_view prefix = route.path.substr(0, route.path.size() - 1);
  if (!path.starts_with(prefix) || path.size() == prefix.size()) return false;
  rest = path.substr(prefix.size());
  return true;
}

struct Match {
  const Route* route = nullptr;
  std::string_view rest;
  std::string allow;  // the methods of that path, when no route has this one
};

Match find_route(const HttpRequest& request) {
  Match match;
  // HEAD is GET without a body; the transport leaves the body out.
  const std::string_view method =
      request.method == "HEAD" ? std::string_view("GET") : std::string_view(request.method);
  for (const Route& route : kRoutes) {
    std::string_view rest;
    if (!matches(route, request.path, rest)) continue;
    if (route.method == method) {
      match.route = &route;
      match.rest = rest;
      return match;
    }
    match.allow += (match.allow.empty() ? "" : ", ") + std::string(route.method);
    if (route.method == "GET") match.allow += ", HEAD";
  }
  return match;
}

HttpReply no_route(const HttpRequest& request, const std::string& allow) {
  ApiError error = bad_request("no such path: " + request.path);
  error.status = 404;
  error.code = "not_found";
  if (!allow.empty()) {
    error.status = 405;
    error.code = "method_not_allowed";
    error.message = request.path + " takes " + allow;
  }
  HttpReply reply = error_reply(error, error_shape_of(request.path));
  if (!allow.empty()) reply.headers.emplace_back("Allow", allow);
  return reply;
}

ApiError still_loading() {
  ApiError error;
  error.status = 503;
  error.code = "loading";
  error.message = "the model is loading";
  error.retry_after_s = 1;
  return error;
}

void reply_and_count(ServerState& state, const Route& route, Exchange& exchange, HttpReply reply) {
  state.metrics.count_request(route.path, reply.status);
  exchange.reply(std::move(reply));
}

void run_plan(ServerState& state,
              const Route& route,
              PlanFn plan_of,
              const std::shared_ptr<Exchange>& exchange) {
  const auto refuse = [&](const ApiError& error) {
    reply_and_count(state, route, *exchange, error_reply(error, route.shape));
  };
  auto body = parse_body(exchange->request());
  if (auto* error = std::get_if<ApiError>(&body)) return refuse(*error);
  const json::Value& value = std::get<json::Value>(body);
  if (state.options.logs_prompts) log::info(json::write(value));
  PlanOrError plan = plan_of(state, value);
  if (auto* error = std::get_if<ApiError>(&plan)) return refuse(*error);
  GenerationJob::run(state, route.path, exchange, std::get<Plan>(std::move(plan)));
}

void run(ServerState& state,
         const Route& route,
         const std::string& rest,
         const std::shared_ptr<Exchange>& exchange) {
  if (const auto* plan_of = std::get_if<PlanFn>(&route.run))
    return run_plan(state, route, *plan_of, exchange);
  if (const auto* async = std::get_if<AsyncFn>(&route.run)) return (*async)(state, exchange);
  reply_and_count(state, route, *exchange,
                  std::get<ReplyFn>(route.run)(state, exchange->request(), rest));
}

}  // namespace

ErrorShape error_shape_of(std::string_view path) noexcept {
  for (const Route& route : kRoutes) {
    std::string_view rest;
    if (matches(route, path, rest)) return route.shape;
  }
  return path.starts_with("/api/") ? ErrorShape::ollama : ErrorShape::openai;
}

void dispatch(ServerState& state, const std::shared_ptr<Exchange>& exchange) {
  const HttpRequest& request = exchange->request();
  const Match match = find_route(request);
  if (!match.route) {
    HttpReply reply = no_route(request, match.allow);
    state.metrics.count_request("other", reply.status);
    return exchange->reply(std::move(reply));
  }
  const Route& route = *match.route;
  if (route.needs_engine && !state.engine.load())
    return reply_and_count(state, route, *exchange, error_reply(still_loading(), route.shape));
  const std::string rest(match.rest);
  if (route.where == Where::inline_) return run(state, route, rest, exchange);
  state.workers->post([&state, &route, rest, exchange] { run(state, route, rest, exchange); });
}

}  // namespace kvasir::server
