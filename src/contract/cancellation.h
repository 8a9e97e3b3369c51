// CancellationSource and CancellationToken: a request to end with a reason, made on any thread,
// read by the engine at step boundaries and before every token (EXE-6). Invariant: the first reason
// stays. Thread-safe, lock-free.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace kvasir {

enum class CancelReason : std::uint8_t {  // EXE-3
  requested,
  consumer_closed,
  consumer_idle,
  engine_closed,
  deadline
};

constexpr std::string_view name_of(CancelReason reason) noexcept {
  switch (reason) {
    case CancelReason::requested:
      return "requested";
    case CancelReason::consumer_closed:
      return "consumer_closed";
    case CancelReason::consumer_idle:
      return "consumer_idle";
    case CancelReason::engine_closed:
      return "engine_closed";
    case CancelReason::deadline:
      return "deadline";
  }
  return "requested";
}

class CancellationToken {
 public:
  CancellationToken() noexcept = default;  // never cancelled

  std::optional<CancelReason> reason() const noexcept {
    const int value = state_ ? state_->load(std::memory_order_acquire) : kLive;
    if (value == kLive) return std::nullopt;
    return static_cast<CancelReason>(value);
  }

 private:
  friend class CancellationSource;
  static constexpr int kLive = -1;
  explicit CancellationToken(std::shared_ptr<std::atomic<int>> state) : state_(std::move(state)) {}
  std::shared_ptr<std::atomic<int>> state_;  // owned by the source and its tokens
};

class CancellationSource {
 public:
  CancellationSource() : state_(std::make_shared<std::atomic<int>>(CancellationToken::kLive)) {}

  void cancel(CancelReason reason) noexcept {
    int live = CancellationToken::kLive;
    state_->compare_exchange_strong(live, static_cast<int>(reason), std::memory_order_acq_rel);
  }
  CancellationToken token() const { return CancellationToken(state_); }

 private:
  std::shared_ptr<std::atomic<int>> state_;  // owned by the source and its tokens
};

}  // namespace kvasir
