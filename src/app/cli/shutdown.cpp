#include "app/cli/shutdown.h"

#include <pthread.h>

#include <csignal>
#include <cstdlib>

#include "app/cli/verbs.h"

namespace kvasir::app {
namespace {

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

ShutdownSignals::ShutdownSignals() {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this] { take_signals(); });
}

ShutdownSignals::~ShutdownSignals() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  pthread_kill(thread_.native_handle(), SIGTERM);
  thread_.join();
}

void ShutdownSignals::request() {
  {
    const std::lock_guard lock(mutex_);
    is_requested_ = true;
  }
  changed_.notify_all();
}

void ShutdownSignals::wait() {
  std::unique_lock lock(mutex_);
  is_waiting_ = true;
  changed_.wait(lock, [this] { return is_requested_; });
}

void ShutdownSignals::take_signals() {
  const sigset_t set = stop_signals();
  for (int signal = 0; sigwait(&set, &signal) == 0;) {
    {
      const std::lock_guard lock(mutex_);
      if (is_ending_) return;
      if (!is_waiting_ || is_requested_) std::_Exit(kExitInterrupted);
      is_requested_ = true;
    }
    changed_.notify_all();
  }
}

}  // namespace kvasir::app
