// EmbeddingRun: the inputs of one embedding request on their way through the engine: as many rows
// at once as the engine runs, the next when one ends; the first that fails ends them all. Its
// functions may be called from any thread.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "engine/engine_thread.h"
#include "kvasir/embed/embedder.h"
#include "kvasir/embedding.h"

namespace kvasir {

struct EmbeddingWork {
  std::vector<std::vector<TokenId>> inputs;
  std::optional<std::uint32_t> dimensions;
  std::optional<Clock::Duration> deadline;  // of the engine's clock
  std::size_t max_rows = 1;                 // at once
};

class EmbeddingRun : public std::enable_shared_from_this<EmbeddingRun> {
 public:
  // Both outlive the run's last row.
  EmbeddingRun(engine::EngineThread& thread,
               const Embedder& embedder,
               EmbeddingWork work,
               OnEmbedded on_done);

  // Errors: what the engine refuses of the first inputs; then on_done is not called.
  Status start();
  void cancel(CancelReason reason);

 private:
  class RowSink;

  Status submit_next();  // with the mutex held
  void row_ended(std::size_t input, std::vector<float> vector, Outcome outcome);
  void end(Outcome outcome);              // same
  void cancel_open(CancelReason reason);  // same

  engine::EngineThread& thread_;
  const Embedder& embedder_;
  EmbeddingWork work_;
  OnEmbedded on_done_;

  std::mutex mutex_;
  Embedded embedded_;
  std::size_t n_submitted_ = 0, n_ended_ = 0;
  std::vector<RequestId> ids_;  // [n_submitted]
  std::optional<CancelReason> cancelled_;
  bool is_over_ = false;
};

}  // namespace kvasir
