// The clock is injected: schedulers and templates never read the time themselves. Thread-safe.
#pragma once

#include <chrono>

namespace kvasir {

class Clock {
 public:
  using Duration = std::chrono::nanoseconds;
  virtual ~Clock() = default;
  virtual Duration now() const noexcept = 0;  // monotonic, from an arbitrary origin
};

class SteadyClock final : public Clock {
 public:
  Duration now() const noexcept override {
    return std::chrono::steady_clock::now().time_since_epoch();
  }
};

class ManualClock final : public Clock {  // tests
 public:
  Duration now() const noexcept override { return now_; }
  void advance(Duration by) noexcept { now_ += by; }

 private:
  Duration now_{};
};

}  // namespace kvasir
