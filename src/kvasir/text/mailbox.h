// Mailbox: the listener of the blocking generate(): events wait here for the caller's thread, which
// thus never runs on the engine's. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "kvasir/generation.h"

namespace kvasir {

class Mailbox final : public GenerationListener {
 public:
  // on_drained: called on the consumer's thread when the box is no longer half full.
  explicit Mailbox(std::function<void()> on_drained) : on_drained_(std::move(on_drained)) {}

  void on_progress(std::uint64_t fed, std::uint64_t total) noexcept override;
  void on_event(GenerationEvent event) noexcept override;
  bool is_paused() const noexcept override;

  // The next event; none when only progress was made or `patience` is over.
  std::optional<GenerationEvent> wait(std::chrono::milliseconds patience);
  // The newest progress, once.
  std::optional<std::pair<std::uint64_t, std::uint64_t>> take_progress();

 private:
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<GenerationEvent> events_;
  std::size_t n_bytes_ = 0;
  std::optional<std::pair<std::uint64_t, std::uint64_t>> progress_;
  std::function<void()> on_drained_;
};

}  // namespace kvasir
