// ServerState: what all endpoints share. Made once; the engine comes later. Thread-safe as noted.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "kvasir/kvasir.h"
#include "server/endpoints/key_rows.h"
#include "server/endpoints/metrics.h"
#include "server/endpoints/response_store.h"
#include "server/endpoints/signature.h"
#include "server/server.h"

namespace kvasir::server {

class HttpServer;
class WorkerPool;

struct ServerState {
  ServeOptions options;  // constant after start
  std::atomic<Engine*> engine{nullptr};
  hub::Library* library = nullptr;  // may be null
  hub::Downloads* downloads = nullptr;
  Metrics metrics;
  std::unique_ptr<KeyRows> key_rows;  // null: rows of a key are not bounded
  ResponseStore responses;
  Signer signer;                // of thinking blocks (SRV-41)
  std::atomic<int> n_holds{0};  // of /admin/drain
  std::mutex shutdown_mutex;
  std::function<void()> request_shutdown;  // guarded by shutdown_mutex

  std::unique_ptr<WorkerPool> workers;  // parsing, rendering, tokenizing
  std::unique_ptr<HttpServer> http;     // last: its threads use all of the above

  std::string served_id() const {
    if (!options.model_id.empty()) return options.model_id;
    const Engine* open = engine;
    std::string name = open ? open->summary().name : "default_model";
    constexpr std::string_view kSuffix = ".gguf";
    if (name.ends_with(kSuffix)) name.resize(name.size() - kSuffix.size());
    return name;
  }
  // SCH-40: until a waiter is probably admitted.
  std::uint32_t retry_after_s() const {
    const Engine* open = engine;
    if (!open) return 1;
    const engine::EngineSnapshot now = open->snapshot();
    const double seconds = now.row_seconds / std::max(1u, now.max_rows);
    return static_cast<std::uint32_t>(std::clamp(std::ceil(seconds), 1.0, 3600.0));
  }
};

}  // namespace kvasir::server
