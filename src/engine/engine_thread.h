// EngineThread: the one thread that owns an engine; everybody else posts messages to it (SCH-3,
// SCH-8, SCH-16). All of its functions may be called from any thread and never wait for a step.
// Messages take effect at the next boundary; with nothing to run the thread sleeps until a message
// or a deadline. Sinks are called on the engine's thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"

namespace kvasir::engine {

class EngineThread {
 public:
  // The clock that the engine was made with.
  EngineThread(std::unique_ptr<Engine> engine, const Clock& clock);
  ~EngineThread();  // as shutdown() without patience
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  // Errors of Engine::prepare, found here; `engine_closed` after close. What only the queue can
  // refuse arrives as the sink's outcome: failed with code `queue_full`.
  Result<RequestId> submit(GenerateOptions options, std::unique_ptr<Sink> sink);
  Result<std::vector<RequestId>> submit_choices(GenerateOptions options,
                                                std::vector<std::unique_ptr<Sink>> sinks);
  void cancel(RequestId request, CancelReason reason);
  void post(std::function<void(Engine&)>
                action);  // runs at the next boundary: flush the cache, hold, create a state
  void wake();            // a paused sink has drained, or a CancellationSource was used
  void close();           // SCH-32: refuse new requests, end waiting ones, finish running ones
  // close(), then up to `patience` for running rows, then cancels the rest with `engine_closed` and
  // joins. Once.
  void shutdown(Clock::Duration patience);

  EngineSnapshot snapshot() const;  // of the last boundary
  const ContextLimit& context_limit() const noexcept { return engine_->context_limit(); }

 private:
  void run();
  bool drain();  // false: stopped, and nothing is left to run
  void sleep(const StepReport& report);

  std::unique_ptr<Engine> engine_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;  // a message arrived, or the engine ran dry
  std::vector<std::function<void(Engine&)>> inbox_;
  EngineSnapshot snapshot_;
  bool has_news_ = false;
  bool is_closed_ = false;
  bool is_stopping_ = false;
  bool is_dry_ = true;  // no request lives
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace kvasir::engine
