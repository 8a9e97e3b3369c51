#include "kvasir/text/text_sink.h"

#include <utility>

namespace kvasir {
namespace {

constexpr std::size_t kMailboxBytes = 1 << 20;
constexpr std::size_t kEventBytes = 128;  // what an event costs beside its text

std::size_t size_of_event(const TextEvent& event) { return kEventBytes + event.text.size(); }

}  // namespace

void Mailbox::post(TextEvent event) {
  {
    const std::lock_guard lock(mutex_);
    n_bytes_ += size_of_event(event);
    events_.push_back(std::move(event));
  }
  arrived_.notify_one();
}

std::optional<TextEvent> Mailbox::wait(std::chrono::milliseconds patience) {
  std::optional<TextEvent> event;
  bool drained = false;
  {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, patience, [&] { return !events_.empty(); })) return event;
    event = std::move(events_.front());
    events_.pop_front();
    const bool was_half_full = n_bytes_ > kMailboxBytes / 2;
    n_bytes_ -= size_of_event(*event);
    drained = was_half_full && n_bytes_ <= kMailboxBytes / 2;
  }
  if (drained && on_drained_) on_drained_();
  return event;
}

bool Mailbox::is_half_full() const {
  const std::lock_guard lock(mutex_);
  return n_bytes_ > kMailboxBytes / 2;
}

TextSink::TextSink(std::uint32_t choice,
                   text::Detokenizer detokenizer,
                   text::StopMatcher stops,
                   std::shared_ptr<Mailbox> mailbox)
    : choice_(choice),
      detokenizer_(std::move(detokenizer)),
      stops_(std::move(stops)),
      mailbox_(std::move(mailbox)) {}

Result<SinkReply> TextSink::commit(std::span<const TokenId> tokens,
                                   std::span<const Logprobs> logprobs) {
  TextEvent event{.choice = choice_,
                  .text = {},
                  .tokens = {tokens.begin(), tokens.end()},
                  .logprobs = {logprobs.begin(), logprobs.end()},
                  .outcome = {}};
  for (const TokenId token : tokens) event.text += stops_.push(detokenizer_.push(token)).text;
  mailbox_->post(std::move(event));
  return stops_.is_matched() ? SinkReply::stop : SinkReply::more;
}

void TextSink::finish(Outcome outcome) noexcept {
  TextEvent event{
      .choice = choice_, .text = {}, .tokens = {}, .logprobs = {}, .outcome = std::move(outcome)};
  if (!stops_.is_matched()) {
    event.text = stops_.push(detokenizer_.finish()).text;
    if (!stops_.is_matched()) event.text += stops_.finish();
  }
  mailbox_->post(std::move(event));
}

}  // namespace kvasir
