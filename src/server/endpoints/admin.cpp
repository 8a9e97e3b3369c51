// POST /admin/drain, /admin/resume, /admin/cache/flush, /admin/shutdown; DELETE /admin/cache
// (SRV-21, SCH-30, 31). The transport has checked who asks (SRV-4).
#include <chrono>
#include <memory>

#include "server/endpoints/endpoint.h"

namespace kvasir::server {

namespace {

void wait_until_drained(ServerState& state, const std::shared_ptr<Exchange>& exchange) {
  constexpr std::chrono::milliseconds kPoll{20};
  const engine::EngineSnapshot now = state.engine.load()->snapshot();
  const bool is_drained = now.is_held && now.active + now.preparing == 0;
  if (is_drained || state.n_holds == 0 || exchange->is_closed())
    return exchange->reply(json_reply(json::Object{{"drained", is_drained}}));
  exchange->post_after(kPoll, [&state, exchange] { wait_until_drained(state, exchange); });
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

HttpReply admin_flush_cache(ServerState& state, const HttpRequest&, std::string_view) {
  state.engine.load()->flush_cache();
  return json_reply(json::Object{{"flushed", true}});
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
