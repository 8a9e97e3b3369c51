// The whole server over a connection in memory and a tiny model: requests of any bytes, several on
// a connection, generations included. The first byte is the size of the pieces they arrive in. At
// the end, and every kReportEvery answers, it says how many requests were answered and how many of
// them were whole and reached the routes. Nothing waits: a generation ends after kPatience, or when
// its client, who has sent everything, is found to have left.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/log.h"
#include "server/detail/worker_pool.h"
#include "server/endpoints/routes.h"
#include "server/endpoints/testing/tiny_engine.h"
#include "server/http/connection.h"
#include "server/http/server.h"
#include "server/http/testing/memory_transport.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace kvasir::server {
namespace {

constexpr std::chrono::milliseconds kPatience{2};
constexpr std::chrono::milliseconds kPeerCheck{4};

constexpr std::size_t kReportEvery = 50'000;

std::size_t n_answered = 0;  // refusals included
std::size_t n_routed = 0;

void report() {
  std::fprintf(stderr, "%zu requests answered, %zu reached the routes\n", n_answered, n_routed);
}

// Counts the heads of replies.
class CountingTransport final : public MemoryTransport {
 public:
  using MemoryTransport::MemoryTransport;
  Task<std::size_t> write_some(const Pieces& pieces) override {
    constexpr std::string_view kHead = "HTTP/1.1 ";
    const auto first = asio::buffer_sequence_begin(pieces);
    const std::string_view begin(static_cast<const char*>(first->data()), first->size());
    if (begin.starts_with(kHead) && ++n_answered % kReportEvery == 0) report();
    return MemoryTransport::write_some(pieces);
  }
};

struct FuzzServer {
  ServerState state;
  std::shared_ptr<Site> site;  // shared with the connections
  std::shared_ptr<Core> core = std::make_shared<Core>(1);

  FuzzServer() {
    log::set_level(log::Level::off);
    state.options.model_id = "tiny";
    state.options.request_timeout = kPatience;
    state.engine = &tiny_engine();
    state.workers = std::make_unique<WorkerPool>(1);
    HttpOptions options;
    options.max_body_bytes = 4096;
    options.max_header_bytes = 2048;
    options.timeouts.peer_check = kPeerCheck;
    site = std::make_shared<Site>(options, [this](std::shared_ptr<Exchange> exchange) {
      ++n_routed;
      dispatch(state, exchange);
    });
    std::atexit(report);
  }

  // Until the connection is gone. Timers that have lost their purpose ring under a later one.
  void serve(std::string bytes, std::size_t step) {
    Connection::start(std::make_shared<Connection>(
        core, core->make_strand(),
        std::make_unique<CountingTransport>(std::move(bytes), step, /*leaves=*/true),
        PeerInfo{true, true}, site));
    core->io().restart();
    while (site->n_connections > 0) core->io().run_one();
    // What a request may have asked for must not reach the next one.
    for (int held = state.n_holds.exchange(0); held > 0; --held) tiny_engine().release_hold();
  }
};

// The length of the last request's body as it is now, so that a changed body is still read whole.
std::string with_true_length(std::string text) {
  constexpr std::string_view kField = "Content-Length: ";
  const std::size_t field = text.rfind(kField);
  if (field == std::string::npos) return text;
  const std::size_t begin = field + kField.size();
  const std::size_t head_end = text.find("\r\n\r\n", begin);
  if (head_end == std::string::npos) return text;
  std::size_t end = begin;
  while (end < head_end && text[end] >= '0' && text[end] <= '9') ++end;
  return text.replace(begin, end - begin, std::to_string(text.size() - head_end - 4));
}

std::size_t put(const std::string& text, std::uint8_t* data, std::size_t max_size) {
  return text.copy(reinterpret_cast<char*>(data), max_size);
}

}  // namespace
}  // namespace kvasir::server

using Bytes = const std::uint8_t*;

// Most changes keep the request whole; every fourth may break its length.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data,
                                               std::size_t size,
                                               std::size_t max_size,
                                               unsigned seed) {
  size = LLVMFuzzerMutate(data, size, max_size);
  if (seed % 4 == 0) return size;
  std::string text(reinterpret_cast<char*>(data), size);
  return kvasir::server::put(kvasir::server::with_true_length(std::move(text)), data, max_size);
}

// Two inputs on one connection: pipelining.
extern "C" std::size_t LLVMFuzzerCustomCrossOver(Bytes first,
                                                 std::size_t first_size,
                                                 Bytes second,
                                                 std::size_t second_size,
                                                 std::uint8_t* out,
                                                 std::size_t max_size,
                                                 unsigned /*seed*/) {
  std::string both(reinterpret_cast<const char*>(first), first_size);
  if (second_size > 1) both.append(reinterpret_cast<const char*>(second) + 1, second_size - 1);
  return kvasir::server::put(both, out, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(Bytes data, std::size_t size) {
  static auto* const server = new kvasir::server::FuzzServer;  // lives as long as its threads
  if (size == 0) return 0;
  server->serve(std::string(reinterpret_cast<const char*>(data) + 1, size - 1), 1 + data[0]);
  return 0;
}
