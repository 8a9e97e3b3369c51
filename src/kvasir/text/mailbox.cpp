#include "kvasir/text/mailbox.h"

namespace kvasir {
namespace {

constexpr std::size_t kHalfFullBytes = 512 << 10;
constexpr std::size_t kEventBytes = 128;  // what an event costs beside its text

std::size_t size_of_event(const GenerationEvent& event) {
  std::size_t n = kEventBytes;
  for (const auto& piece : event.pieces) n += piece.text.size() + piece.call.arguments.size();
  return n;
}

}  // namespace

void Mailbox::on_progress(std::uint64_t fed, std::uint64_t total) noexcept {
  {
    const std::lock_guard lock(mutex_);
    progress_ = {fed, total};
  }
  arrived_.notify_one();
}

void Mailbox::on_event(GenerationEvent event) noexcept {
  {
    const std::lock_guard lock(mutex_);
    n_bytes_ += size_of_event(event);
    events_.push_back(std::move(event));
  }
  arrived_.notify_one();
}

bool Mailbox::is_paused() const noexcept {
  const std::lock_guard lock(mutex_);
  return n_bytes_ > kHalfFullBytes;
}

std::optional<GenerationEvent> Mailbox::wait(std::chrono::milliseconds patience) {
  std::optional<GenerationEvent> event;
  bool is_drained = false;
  {
    std::unique_lock lock(mutex_);
    const auto has_news = [&] { return !events_.empty() || progress_.has_value(); };
    if (!arrived_.wait_for(lock, patience, has_news) || events_.empty()) return event;
    event = std::move(events_.front());
    events_.pop_front();
    const bool was_half_full = n_bytes_ > kHalfFullBytes;
    n_bytes_ -= size_of_event(*event);
    is_drained = was_half_full && n_bytes_ <= kHalfFullBytes;
  }
  if (is_drained && on_drained_) on_drained_();
  return event;
}

std::optional<std::pair<std::uint64_t, std::uint64_t>> Mailbox::take_progress() {
  const std::lock_guard lock(mutex_);
  return std::exchange(progress_, std::nullopt);
}

}  // namespace kvasir
