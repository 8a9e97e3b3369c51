#include "kvasir/embed/embedding_run.h"

#include <utility>

namespace kvasir {
namespace {

Outcome refusal(const Error& error) {
  Outcome out;
  if (error.code == Errc::cancelled)
    out.end = Cancelled{CancelReason::engine_closed};
  else
    out.end = Failed{std::string(error.id.empty() ? "invalid_request" : error.id), error.what, {}};
  return out;
}

}  // namespace

// One input's row: pools what comes, and tells the run the end.
class EmbeddingRun::RowSink final : public Sink {
 public:
  RowSink(std::shared_ptr<EmbeddingRun> run, std::size_t input)
      : run_(std::move(run)),
        input_(input),
        pooler_(run_->embedder_.pooling(), run_->embedder_.width()) {}

  Result<SinkReply> commit(std::span<const TokenId>, std::span<const Logprobs>) override {
    return SinkReply::stop;
  }
  Status commit_hidden(const HiddenRows& rows) override {
    pooler_.add(rows);
    return {};
  }
  void finish(Outcome outcome) noexcept override {
    run_->row_ended(input_, pooler_.vector(run_->work_.dimensions), std::move(outcome));
  }

 private:
  std::shared_ptr<EmbeddingRun> run_;
  std::size_t input_;
  Pooler pooler_;
};

EmbeddingRun::EmbeddingRun(engine::EngineThread& thread,
                           const Embedder& embedder,
                           EmbeddingWork work,
                           OnEmbedded on_done)
    : thread_(thread), embedder_(embedder), work_(std::move(work)), on_done_(std::move(on_done)) {
  embedded_.vectors.resize(work_.inputs.size());
}

Status EmbeddingRun::start() {
  const std::lock_guard lock(mutex_);
  const std::size_t n_first = std::min(work_.max_rows, work_.inputs.size());
  while (n_submitted_ < n_first) {
    const Status submitted = submit_next();
    if (submitted) continue;
    is_over_ = true;
    cancel_open(CancelReason::requested);
    return submitted;
  }
  return {};
}

Status EmbeddingRun::submit_next() {
  GenerateOptions options;
  options.prompt = std::move(work_.inputs[n_submitted_]);
  options.hidden = embedder_.wanted();
  options.deadline = work_.deadline;
  embedded_.prompt_tokens += options.prompt.size();
  auto sink = std::make_unique<RowSink>(shared_from_this(), n_submitted_);
  KVASIR_TRY(const RequestId id, thread_.submit(std::move(options), std::move(sink)));
  ids_.push_back(id);
  ++n_submitted_;
  return {};
}

void EmbeddingRun::row_ended(std::size_t input, std::vector<float> vector, Outcome outcome) {
  const std::lock_guard lock(mutex_);
  if (is_over_) return;
  if (!outcome.completed()) return end(std::move(outcome));
  embedded_.vectors[input] = std::move(vector);
  if (++n_ended_ == work_.inputs.size()) return end(std::move(outcome));
  if (cancelled_) {  // the row was done before the engine heard of it
    outcome.end = Cancelled{*cancelled_};
    return end(std::move(outcome));
  }
  if (n_submitted_ == work_.inputs.size()) return;
  if (const Status submitted = submit_next(); !submitted) end(refusal(submitted.error()));
}

void EmbeddingRun::end(Outcome outcome) {
  is_over_ = true;
  cancel_open(CancelReason::requested);
  const Cancelled* cancelled = outcome.cancelled();
  if (cancelled && cancelled->reason == CancelReason::deadline)
    outcome.end = Failed{"queue_timeout", "the request took too long", {}};
  outcome.stats.prompt_tokens = embedded_.prompt_tokens;
  if (!outcome.completed()) embedded_.vectors.clear();
  if (on_done_) on_done_({std::move(embedded_), std::move(outcome)});
  on_done_ = nullptr;
}

void EmbeddingRun::cancel(CancelReason reason) {
  const std::lock_guard lock(mutex_);
  if (is_over_ || cancelled_) return;
  cancelled_ = reason;
  cancel_open(reason);
}

// Unknown ids, those of rows that have ended, are ignored by the engine.
void EmbeddingRun::cancel_open(CancelReason reason) {
  for (const RequestId id : ids_) thread_.cancel(id, reason);
}

}  // namespace kvasir
