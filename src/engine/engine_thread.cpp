#include "engine/engine_thread.h"

#include <exception>
#include <string>
#include <utility>

#include "base/log.h"

namespace kvasir::engine {
namespace {

// std::function must be copyable; the posted request is not.
struct Arrival {
  PreparedRequest request;
  std::vector<std::unique_ptr<Sink>> sinks;
};

void arrive(Engine& engine, Arrival& arrival) {
  const Status queued = engine.enqueue(std::move(arrival.request), std::move(arrival.sinks));
  if (queued) return;
  const Error& error = queued.error();
  for (const auto& sink : arrival.sinks) {
    Outcome outcome;
    if (error.code == Errc::cancelled) {
      outcome.end = Cancelled{CancelReason::engine_closed};
    } else {
      const std::string_view code = error.id.empty() ? "invalid_request" : error.id;
      outcome.end = Failed{std::string(code), error.what, {}};
    }
    sink->finish(std::move(outcome));
  }
}

}  // namespace

EngineThread::EngineThread(std::unique_ptr<Engine> engine, const Clock& clock)
    : engine_(std::move(engine)),
      clock_(clock),
      snapshot_(engine_->snapshot()),
      thread_([this] { run(); }) {}

EngineThread::~EngineThread() { shutdown({}); }

Result<RequestId> EngineThread::submit(GenerateOptions options, std::unique_ptr<Sink> sink) {
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(std::move(sink));
  KVASIR_TRY(const std::vector<RequestId> ids,
             submit_choices(std::move(options), std::move(sinks)));
  return ids.front();
}

Result<std::vector<RequestId>> EngineThread::submit_choices(
    GenerateOptions options, std::vector<std::unique_ptr<Sink>> sinks) {
  KVASIR_TRY(PreparedRequest request,
             engine_->prepare(std::move(options), static_cast<std::uint32_t>(sinks.size())));
  std::vector<RequestId> ids = request.ids();
  // Owned by the message and its copies in the inbox.
  auto arrival = std::make_shared<Arrival>(Arrival{std::move(request), std::move(sinks)});
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return Error{Errc::cancelled, "the server is shutting down", "engine_closed"};
    inbox_.emplace_back([arrival](Engine& engine) { arrive(engine, *arrival); });
    has_news_ = true;
  }
  changed_.notify_all();
  return ids;
}

void EngineThread::cancel(RequestId request, CancelReason reason) {
  post([request, reason](Engine& engine) { engine.cancel(request, reason); });
}

void EngineThread::post(std::function<void(Engine&)> action) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(action));
    has_news_ = true;
  }
  changed_.notify_all();
}

void EngineThread::wake() {
  {
    const std::lock_guard lock(mutex_);
    has_news_ = true;
  }
  changed_.notify_all();
}

void EngineThread::close() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  post([](Engine& engine) { engine.close(); });
}

void EngineThread::shutdown(Clock::Duration patience) {
  if (!thread_.joinable()) return;
  close();
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, patience, [this] { return is_dry_ && inbox_.empty(); });
    is_stopping_ = true;
  }
  post([](Engine& engine) { engine.cancel_all(CancelReason::engine_closed); });
  thread_.join();
}

EngineSnapshot EngineThread::snapshot() const {
  const std::lock_guard lock(mutex_);
  return snapshot_;
}

void EngineThread::run() {
  while (drain()) {
    try {
      const StepReport report = engine_->step();
      {
        const std::lock_guard lock(mutex_);
        snapshot_ = engine_->snapshot();
      }
      if (report.is_idle && report.n_ended == 0) sleep(report);  // an end may have been the last
    } catch (const std::exception& broken) {
      log::error(std::string("engine: ") + broken.what());
      engine_->fail_all({Errc::device, broken.what()});
    }
  }
}

bool EngineThread::drain() {
  std::vector<std::function<void(Engine&)>> messages;
  bool is_stopping = false;
  {
    const std::lock_guard lock(mutex_);
    messages.swap(inbox_);
    has_news_ = false;
    is_stopping = is_stopping_;
    is_dry_ = messages.empty() && !engine_->has_requests();
    if (is_dry_) changed_.notify_all();
  }
  for (const auto& message : messages) message(*engine_);
  return !is_stopping || engine_->has_requests();
}

void EngineThread::sleep(const StepReport& report) {
  std::unique_lock lock(mutex_);
  is_dry_ = !engine_->has_requests();
  if (is_dry_) changed_.notify_all();
  const auto has_news = [this] { return has_news_; };
  if (!report.wake_at) return changed_.wait(lock, has_news);
  changed_.wait_for(lock, *report.wake_at - clock_.now(), has_news);
}

}  // namespace kvasir::engine
