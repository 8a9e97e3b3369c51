#include "server/endpoints/embedding_job.h"

#include <utility>

#include "server/detail/worker_pool.h"
#include "server/endpoints/endpoint.h"

namespace kvasir::server {
namespace {

struct Job {
  ServerState& state;
  std::string_view endpoint;
  ErrorShape shape;
  std::shared_ptr<Exchange> exchange;
  std::function<json::Value(const EmbeddingEnd&)> answer;

  // On a worker thread.
  void reply(const EmbeddingEnd& end) const {
    state.metrics.add_outcome(end.outcome);
    const Cancelled* cancelled = end.outcome.cancelled();
    if (cancelled && cancelled->reason == CancelReason::consumer_closed)
      return state.metrics.count_request(endpoint, 499);
    if (!end.outcome.completed())
      return refuse_embedding(state, endpoint, shape, *exchange, to_api_error(end.outcome));
    state.metrics.count_request(endpoint, 200);
    exchange->reply(json_reply(answer(end)));
  }
};

}  // namespace

void refuse_embedding(ServerState& state,
                      std::string_view endpoint,
                      ErrorShape shape,
                      Exchange& exchange,
                      const ApiError& error) {
  ApiError told = error;
  if (told.code == "queue_full") told.retry_after_s = state.retry_after_s();
  state.metrics.count_request(endpoint, told.status);
  exchange.reply(error_reply(told, shape));
}

void run_embedding(ServerState& state,
                   std::string_view endpoint,
                   ErrorShape shape,
                   const std::shared_ptr<Exchange>& exchange,
                   EmbeddingPlan plan) {
  if (!plan.request.timeout && state.options.request_timeout.count() > 0)
    plan.request.timeout = state.options.request_timeout;
  // Shared with the engine's callback, which must be copyable.
  const auto job =
      std::make_shared<const Job>(Job{state, endpoint, shape, exchange, std::move(plan.answer)});
  Engine* const engine = state.engine;
  const auto started = engine->start_embedding(plan.request, [job](EmbeddingEnd end) {
    const auto shared = std::make_shared<const EmbeddingEnd>(std::move(end));
    // By way of the strand, which no longer runs when the server has gone before the engine.
    job->exchange->post(
        [job, shared] { job->state.workers->post([job, shared] { job->reply(*shared); }); });
  });
  if (!started) {
    ApiError error = to_api_error(started.error());
    if (error.status == 400 && error.param.empty()) error.param = "input";
    return refuse_embedding(state, endpoint, shape, *exchange, error);
  }
  const auto leave = [engine, embedding = *started] {
    engine->cancel(embedding, CancelReason::consumer_closed);
  };
  exchange->on_peer_gone(leave);
  if (exchange->is_closed()) leave();
}

}  // namespace kvasir::server
