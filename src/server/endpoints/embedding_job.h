// One HTTP request's embeddings from start to reply. The engine tells the end on its own thread; a
// worker writes the answer, for vectors are long. Never blocks.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "kvasir/kvasir.h"
#include "server/endpoints/api_error.h"
#include "server/endpoints/state.h"
#include "server/http/exchange.h"

namespace kvasir::server {

struct EmbeddingPlan {
  EmbedRequest request;
  std::function<json::Value(const EmbeddingEnd& end)> answer;
};

// endpoint: a literal, for metrics. The request's timeout is the server's where it has none.
void run_embedding(ServerState& state,
                   std::string_view endpoint,
                   ErrorShape shape,
                   const std::shared_ptr<Exchange>& exchange,
                   EmbeddingPlan plan);
// A refusal before anything ran.
void refuse_embedding(ServerState& state,
                      std::string_view endpoint,
                      ErrorShape shape,
                      Exchange& exchange,
                      const ApiError& error);

}  // namespace kvasir::server
