// The HTTP server over one open model (server.md). Server::start listens at once and answers
// /health with 503 until the engine is given; then serves the OpenAI, Anthropic, Responses and
// Ollama APIs and the web chat. All functions are for the thread that owns the server.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "json/json.h"
#include "kvasir/kvasir.h"

namespace kvasir::hub {
class Library;
class Downloads;
}  // namespace kvasir::hub

namespace kvasir::server {

struct ServerState;  // private

struct ServeOptions {
  // Transport (SRV-1, 4, 5).
  std::string host = "127.0.0.1";
  std::uint16_t port = 8080;                // 0: any free one
  std::filesystem::path unix_path;          // instead of host and port
  std::filesystem::path tls_cert, tls_key;  // PEM; both or none
  std::vector<std::string> api_keys;
  std::string admin_key;
  std::vector<std::string> allowed_origins;  // empty: loopback origins; "*": any
  std::uint64_t max_body_bytes = 32ull << 20;
  int n_http_threads = 0;  // 0: one, or two with more than four cores

  // What is served.
  std::string model_id;                       // empty: the model's file or folder name
  std::vector<std::string> aliases;           // --alias
  bool strict_model = false;                  // other names are 404
  std::string reasoning_field = "reasoning";  // --reasoning-format; "none": left in the content
  json::Object template_variables;            // --chat-template-args
  bool mlx_logprobs = false;            // --logprobs-format mlx: mlx-lm's block in whole answers
  bool streams_tool_arguments = false;  // a chunk for a call's name, then chunks of its arguments
  bool logs_prompts = false;
  std::optional<std::uint32_t> reasoning_budget;  // --reasoning-budget; none: no limit (TXT-52)
  std::uint32_t max_rows_per_key = 0;             // SCH-44; 0: not bounded

  // Time (SCH-32, 41, 42); 0: none.
  std::chrono::milliseconds request_timeout{0};
  std::chrono::milliseconds consumer_timeout{60'000};
};

class Server {
 public:
  // Errors: an address that cannot be bound, certificates that cannot be read. `library` and
  // `downloads` may be null.
  static Result<std::unique_ptr<Server>> start(const ServeOptions& options,
                                               hub::Library* library = nullptr,
                                               hub::Downloads* downloads = nullptr);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const noexcept;
  std::string url() const;  // "http://127.0.0.1:8080"

  // The engine outlives the server. Requests before that get 503 `loading`.
  void serve(Engine& engine);
  // `POST /admin/shutdown` asks for it; called on a server thread.
  void on_shutdown_request(std::function<void()> callback);

  // SCH-32: new requests get 503 `engine_closed`, running ones finish within `patience`, the rest
  // is cancelled; then everything is closed. Once.
  void shutdown(std::chrono::milliseconds patience);

 private:
  explicit Server(std::unique_ptr<ServerState> state);
  std::unique_ptr<ServerState> state_;
};

}  // namespace kvasir::server
