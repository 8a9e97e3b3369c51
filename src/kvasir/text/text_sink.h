// TextSink: a row's tokens → text. Detokenizes, looks for stop strings, and posts events to the
// caller's mailbox, so that a consumer never runs on the engine's thread (SCH-43). One sink a
// choice; the mailbox is shared by a request's choices.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "contract/sink.h"
#include "text/detokenizer.h"
#include "text/stop_strings.h"

namespace kvasir {

struct TextEvent {
  std::uint32_t choice = 0;
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<Logprobs> logprobs;
  std::optional<Outcome> outcome;  // the choice's last event
};

class Mailbox {  // thread-safe
 public:
  void post(TextEvent event);
  std::optional<TextEvent> wait(std::chrono::milliseconds patience);
  bool is_half_full() const;
  // Called (on the consumer's thread) when the box is no longer half full.
  void on_drained(std::function<void()> callback) { on_drained_ = std::move(callback); }

 private:
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<TextEvent> events_;
  std::size_t n_bytes_ = 0;
  std::function<void()> on_drained_;
};

class TextSink final : public Sink {
 public:
  TextSink(std::uint32_t choice,
           text::Detokenizer detokenizer,
           text::StopMatcher stops,
           std::shared_ptr<Mailbox> mailbox);

  Result<SinkReply> commit(std::span<const TokenId> tokens,
                           std::span<const Logprobs> logprobs) override;
  bool is_paused() const noexcept override { return mailbox_->is_half_full(); }
  void finish(Outcome outcome) noexcept override;

 private:
  std::uint32_t choice_;
  text::Detokenizer detokenizer_;
  text::StopMatcher stops_;
  std::shared_ptr<Mailbox> mailbox_;  // shared with the waiting caller and the other choices
};

}  // namespace kvasir
