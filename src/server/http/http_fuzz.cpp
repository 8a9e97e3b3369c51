// Feeds bytes to a connection in pieces: parser, gate, pipelining, replies, end.
#include <cstdint>
#include <string>

#include "base/log.h"
#include "server/http/connection.h"
#include "server/http/testing/memory_transport.h"

namespace kvasir::server {
namespace {

void handle(const std::shared_ptr<Exchange>& exchange) {
  const HttpRequest& request = exchange->request();
  if (request.path == "/drop") return;
  if (request.path == "/stream") {
    exchange->begin_stream({.body = request.body});
    exchange->post([exchange] {
      exchange->write(exchange->request().query);
      exchange->end();
    });
    return;
  }
  exchange->reply({.headers = request.headers, .body = request.body});
}

}  // namespace
}  // namespace kvasir::server

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvasir::server;
  static const auto site = [] {
    kvasir::log::set_level(kvasir::log::Level::off);
    HttpOptions options;
    options.max_body_bytes = 512;
    options.max_header_bytes = 1024;
    return std::make_shared<Site>(options, handle);
  }();
  static const auto core = std::make_shared<Core>(1);
  if (size == 0) return 0;
  const std::size_t step = 1 + data[0];
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  Connection::start(std::make_shared<Connection>(
      core, core->make_strand(), std::make_unique<MemoryTransport>(std::move(bytes), step),
      PeerInfo{true, true}, site));
  core->io().restart();
  core->io().run();
  return 0;
}
