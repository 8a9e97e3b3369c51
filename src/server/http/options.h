// How the HTTP server is set up. Filled by the caller before listen(), constant afterwards.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/exchange.h"
#include "server/http/http_error.h"

namespace kvasir::server {

struct HttpTimeouts {
  std::chrono::milliseconds handshake{10'000};  // TLS
  // Headers: from the first byte (of a new connection: from its start) to the last.
  // Body: the longest pause, and the slack of the slowest accepted rate (kMinBodyBytesPerSecond).
  std::chrono::milliseconds read{30'000};
  std::chrono::milliseconds body_total{600'000};  // a body, however steadily it comes
  std::chrono::milliseconds idle{75'000};         // between two requests of a connection
  std::chrono::milliseconds write{30'000};        // no progress once everything was handed over
  std::chrono::milliseconds peer_check{100};  // how often a waiting exchange's peer is looked at
};

// A body slower than this on average (after `read`'s slack) is cut: a byte every 29 s is an attack.
inline constexpr std::uint64_t kMinBodyBytesPerSecond = 4096;

// Writes a refusal of the transport in the error shape of the API that owns `path` (empty:
// unknown).
using ErrorWriter = std::function<HttpReply(std::string_view path, const HttpError& error)>;

struct HttpOptions {
  std::string host = "127.0.0.1";  // empty: no TCP listener
  std::uint16_t port = 8080;       // 0: any free one
  std::string unix_path;           // empty: no unix socket
  std::string tls_cert;            // PEM files; TLS on TCP when both are given
  std::string tls_key;
  int n_threads = 2;
  std::size_t max_body_bytes = std::size_t{32} << 20;
  std::size_t max_header_bytes = std::size_t{64} << 10;
  std::size_t max_connections = 16'384;      // more wait in the kernel's queue
  std::vector<std::string> allowed_origins;  // empty: loopback origins; "*": any
  std::vector<std::string> api_keys;         // empty: no key is asked for
  std::string admin_key;                     // empty: administration from loopback peers only
  std::vector<std::string> open_paths = {"/health", "/v1/health"};  // need no key
  std::string version;                                              // x-kvasir-version
  ErrorWriter write_error = openai_error;
  HttpTimeouts timeouts;
};

}  // namespace kvasir::server
