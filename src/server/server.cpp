#include "server/server.h"

#include <thread>
#include <utility>

#include "base/log.h"
#include "server/detail/version.h"
#include "server/detail/worker_pool.h"
#include "server/endpoints/routes.h"
#include "server/endpoints/state.h"
#include "server/http/server.h"

namespace kvasir::server {
namespace {

constexpr int kWorkers = 2;

HttpReply refusal_of_transport(std::string_view path, const HttpError& error) {
  ApiError out;
  out.status = error.status;
  out.code = std::string(error.code);
  out.message = error.message;
  return error_reply(out, error_shape_of(path));
}

HttpOptions transport_options(const ServeOptions& options) {
  HttpOptions http;
  http.unix_path = options.unix_path.string();
  http.host = options.unix_path.empty() ? options.host : "";
  http.port = options.port;
  http.tls_cert = options.tls_cert.string();
  http.tls_key = options.tls_key.string();
  http.n_threads = options.n_http_threads;
  // One serves thousands of streams; on few cores a second one only takes turns with computing.
  if (http.n_threads == 0) http.n_threads = std::thread::hardware_concurrency() > 4 ? 2 : 1;
  http.max_body_bytes = options.max_body_bytes;
  http.allowed_origins = options.allowed_origins;
  http.api_keys = options.api_keys;
  http.admin_key = options.admin_key;
  http.version = std::string(kVersion);
  http.write_error = refusal_of_transport;
  // A reader that takes nothing is the job's business (SCH-42).
  if (options.consumer_timeout.count() > 0) http.timeouts.write = options.consumer_timeout;
  return http;
}

}  // namespace

Result<std::unique_ptr<Server>> Server::start(const ServeOptions& options,
                                              hub::Library* library,
                                              hub::Downloads* downloads) {
  auto state = std::make_unique<ServerState>();
  state->options = options;
  state->library = library;
  state->downloads = downloads;
  if (options.max_rows_per_key > 0)
    state->key_rows = std::make_unique<KeyRows>(options.api_keys, options.max_rows_per_key);
  state->workers = std::make_unique<WorkerPool>(kWorkers);
  ServerState* shared = state.get();
  KVASIR_TRY(state->http, HttpServer::listen(transport_options(options),
                                             [shared](std::shared_ptr<Exchange> exchange) {
                                               dispatch(*shared, exchange);
                                             }));
  if (!state->http->is_loopback_only() && options.api_keys.empty())
    log::warning("listening beyond loopback without --api-key: anyone who reaches it can use it");
  if (options.max_rows_per_key > 0 && options.api_keys.empty())
    log::warning("--max-rows-per-key has no effect without --api-key");
  state->http->start();
  return std::unique_ptr<Server>(new Server(std::move(state)));
}

Server::Server(std::unique_ptr<ServerState> state) : state_(std::move(state)) {}

Server::~Server() {
  state_->http->stop();
  state_->workers.reset();
}

std::uint16_t Server::port() const noexcept { return state_->http->port(); }
std::string Server::url() const { return state_->http->url(); }
void Server::serve(Engine& engine) { state_->engine = &engine; }

void Server::on_shutdown_request(std::function<void()> callback) {
  const std::lock_guard lock(state_->shutdown_mutex);
  state_->request_shutdown = std::move(callback);
}

void Server::shutdown(std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds kFlush{2000};  // for the last bytes of ended streams
  // Who comes meanwhile hears `engine_closed`, from a server that still answers.
  if (Engine* engine = state_->engine) engine->shutdown(patience);
  state_->http->stop_accepting();
  const auto end = std::chrono::steady_clock::now() + kFlush;
  while (state_->http->n_connections() > 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  state_->http->stop();
}

}  // namespace kvasir::server
