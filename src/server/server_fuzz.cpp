// The whole server over a connection in memory and a tiny model: requests of any bytes, several on
// a connection, generations included. The first byte is the size of the pieces they arrive in. At
// the end it says how many whole requests reached the routes.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/log.h"
#include "server/detail/worker_pool.h"
#include "server/endpoints/routes.h"
#include "server/endpoints/testing/tiny_engine.h"
#include "server/http/connection.h"
#include "server/http/server.h"
#include "server/http/testing/memory_transport.h"

namespace kvasir::server {
namespace {

std::size_t n_requests = 0;

struct FuzzServer {
  ServerState state;
  std::shared_ptr<Site> site;  // shared with the connections
  std::shared_ptr<Core> core = std::make_shared<Core>(1);

  FuzzServer() {
    log::set_level(log::Level::off);
    state.options.model_id = "tiny";
    state.options.request_timeout = std::chrono::milliseconds(20);
    state.engine = &tiny_engine();
    state.workers = std::make_unique<WorkerPool>(1);
    HttpOptions options;
    options.max_body_bytes = 4096;
    options.max_header_bytes = 2048;
    site = std::make_shared<Site>(options, [this](std::shared_ptr<Exchange> exchange) {
      ++n_requests;
      dispatch(state, exchange);
    });
    std::atexit([] { std::fprintf(stderr, "%zu requests reached the routes\n", n_requests); });
  }

  void serve(std::string bytes, std::size_t step) {
    Connection::start(std::make_shared<Connection>(
        core, core->make_strand(), std::make_unique<MemoryTransport>(std::move(bytes), step),
        PeerInfo{true, true}, site));
    core->io().restart();
    core->io().run();
    // What a request may have asked for must not reach the next one.
    for (int held = state.n_holds.exchange(0); held > 0; --held) tiny_engine().release_hold();
  }
};

}  // namespace
}  // namespace kvasir::server

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static auto* const server = new kvasir::server::FuzzServer;  // lives as long as its threads
  if (size == 0) return 0;
  server->serve(std::string(reinterpret_cast<const char*>(data) + 1, size - 1), 1 + data[0]);
  return 0;
}
