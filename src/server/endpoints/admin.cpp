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

// A hold of one flush, which whoever asks for it may also leave.
struct FlushHold {
  explicit FlushHold(Engine& e) : engine(e) { engine.hold(); }
  ~FlushHold() { engine.release_hold(); }
  FlushHold(const FlushHold&) = delete;
  FlushHold& operator=(const FlushHold&) = delete;
  Engine& engine;
};

void flush_when_idle(const std::shared_ptr<FlushHold>& hold,
                     const std::shared_ptr<Exchange>& exchange) {
  const bool is_now = is_idle(hold->engine.snapshot());
  if (is_now) hold->engine.flush_cache();
  if (is_now || exchange->is_closed())
    return exchange->reply(json_reply(json::Object{{"flushed", is_now}}));
  exchange->post_after(kPoll, [hold, exchange] { flush_when_idle(hold, exchange); });
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

// Admission waits meanwhile, running rows end first (SCH-30): what they read is not taken away, and
// nothing of before is published after.
void admin_flush_cache(ServerState& state, const std::shared_ptr<Exchange>& exchange) {
  // Shared by the actions that wait.
  flush_when_idle(std::make_shared<FlushHold>(*state.engine.load()), exchange);
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
