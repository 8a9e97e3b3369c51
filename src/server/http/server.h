// The HTTP server: listeners, I/O threads and their connections. Every request that the transport
// and the gate let pass goes to the Handler on an I/O thread; it answers through the Exchange.
// Called by whoever serves; port(), url() and the stop functions from any thread but a Handler's
// (stop() joins the I/O threads).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/http/exchange.h"
#include "server/http/options.h"

namespace kvasir::server {

class HttpServer {
 public:
  // Binds everything and loads the certificate; nothing is accepted before start().
  static Result<std::unique_ptr<HttpServer>> listen(HttpOptions options, Handler handler);
  ~HttpServer();  // stop()
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::uint16_t port() const noexcept;  // 0: no TCP
  std::string url() const;              // "http://127.0.0.1:8080", or "unix:/path"
  bool is_loopback_only() const noexcept;
  std::size_t n_connections() const noexcept;

  void start();
  // The graceful end: no new connections, idle ones are closed, requests under way are answered
  // with `Connection: close`. n_connections() falls to 0 as they finish.
  void stop_accepting();
  void close_idle();
  void stop();  // now: exchanges see their peer gone; returns when no thread runs

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvasir::server
