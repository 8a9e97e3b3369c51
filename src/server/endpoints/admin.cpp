// POST /admin/drain, /admin/resume, /admin/cache/flush, /admin/shutdown; DELETE /admin/cache
// (SRV-21, SCH-30, 31). The transport has checked who asks (SRV-4).
#include <chrono>
#include <memory>

#include "server/endpoints/endpoint.h"

namespace kvasir::server {

namespace {

constexpr std::chrono::milliseconds kPoll{5};

bool is_idle(const engine::EngineSnapshot& now) {
  return now.is_held && now.active + now.preparing == 0;
}

void wait_until_drained(ServerState& state, const std::shared_ptr<Exchange>& exchange) {
  const bool is_drained = is_idle(state.engine.load()->snapshot());
  if (is_drained || state.n_holds == 0 || exchange->is_closed())
    return exchange->reply(json_reply(json::Object{{"drained", is_drained}}));
  exchange->post_after(kPoll, [&state, exchange] { wait_until_drained(state, exchange); });
}

// A hold of one emptying, which whoever asks for it may also leave.
struct FlushHold {
  explicit FlushHold(Engine& e) : engine(e) { engine.hold(); }
  ~FlushHold() { engine.release_hold(); }
  FlushHold(const FlushHold&) = delete;
  FlushHold& operator=(const FlushHold&) = delete;
  Engine& engine;
};

// The answer comes when the cache is empty, so that whoever reads /stats next sees it.
void empty_when_idle(const std::shared_ptr<FlushHold>& hold,
                     const std::shared_ptr<Exchange>& exchange,
                     bool is_asked = false) {
  const engine::EngineSnapshot now = hold->engine.snapshot();
  const bool is_empty = is_asked && now.cache.entries == 0;
  if (is_empty || exchange->is_closed())
    return exchange->reply(json_reply(json::Object{{"flushed", is_empty}}));
  if (!is_asked && is_idle(now)) {
    hold->engine.flush_cache();
    is_asked = true;
  }
  exchange->post_after(kPoll,
                       [hold, exchange, is_asked] { empty_when_idle(hold, exchange, is_asked); });
}

}  // namespace

void admin_drain(ServerState& state, const std::shared_ptr<Exchange>& exchange) {
  ++state.n_holds;
  state.engine.load()->hold();
  wait_until_drained(state, exchange);
}

HttpReply admin_resume(ServerState& state, const HttpRequest&, std::string_view) {
  for (int held = state.n_holds.exchange(0); held > 0; --held) state.engine.load()->release_hold();
  return json_reply(json::Object{{"resumed", true}});
}

// CACHE-41: what is to be on disk is there. Without a disk tier that is nothing, and the cache in
// RAM stays.
HttpReply admin_flush_cache(ServerState&, const HttpRequest&, std::string_view) {
  return json_reply(json::Object{{"durable", true}, {"entries", 0}, {"bytes", 0}});
}

// Admission waits meanwhile, running rows end first (SCH-30): what they read is not taken away, and
// nothing of before is published after.
void admin_empty_cache(ServerState& state, const std::shared_ptr<Exchange>& exchange) {
  // Shared by the actions that wait.
  empty_when_idle(std::make_shared<FlushHold>(*state.engine.load()), exchange);
}

HttpReply admin_shutdown(ServerState& state, const HttpRequest&, std::string_view) {
  std::function<void()> request;
  {
    const std::lock_guard lock(state.shutdown_mutex);
    request = state.request_shutdown;
  }
  if (request) request();
  return json_reply(json::Object{{"shutting_down", true}});
}

}  // namespace kvasir::server
