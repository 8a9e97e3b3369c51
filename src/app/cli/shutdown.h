// ShutdownSignals: SIGINT and SIGTERM as a request to stop (SCH-32). Make it before any thread
// starts: it blocks the signals, and its own thread takes them. A second signal ends the process at
// once with exit code 130, as does any while nobody waits yet.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace kvasir::app {

class ShutdownSignals {
 public:
  ShutdownSignals();
  ~ShutdownSignals();
  ShutdownSignals(const ShutdownSignals&) = delete;
  ShutdownSignals& operator=(const ShutdownSignals&) = delete;

  void request();  // as a first signal; any thread
  void wait();     // until a signal or a request

 private:
  void take_signals();

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_waiting_ = false, is_requested_ = false, is_ending_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace kvasir::app
