#include "kvasir/text/text_sink.h"

#include <iterator>
#include <string>
#include <utility>

namespace kvasir {
namespace {

std::string finish_reason(const Outcome& outcome, std::uint32_t n_tool_calls) {
  if (const Completed* completed = outcome.completed())
    return n_tool_calls > 0 ? "tool_calls" : std::string(name_of(completed->reason));
  const Cancelled* cancelled = outcome.cancelled();
  if (!cancelled) return "failed";
  return cancelled->reason == CancelReason::deadline ? "length" : "cancelled";
}

void append(std::vector<text::OutputPiece>& out, std::vector<text::OutputPiece> more) {
  out.insert(out.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace

TextSink::TextSink(std::uint32_t choice,
                   text::OutputParser parser,
                   std::shared_ptr<GenerationListener> listener)
    : choice_(choice), parser_(std::move(parser)), listener_(std::move(listener)) {}

Result<SinkReply> TextSink::commit(std::span<const TokenId> tokens,
                                   std::span<const Logprobs> logprobs) {
  GenerationEvent event;
  event.choice = choice_;
  event.tokens.assign(tokens.begin(), tokens.end());
  event.logprobs.assign(logprobs.begin(), logprobs.end());
  for (const TokenId token : tokens) append(event.pieces, parser_.push(token));
  event.is_stopped = parser_.matched_stop().has_value();
  listener_->on_event(std::move(event));
  return parser_.is_ended() ? SinkReply::stop : SinkReply::more;
}

Status TextSink::commit_prompt(std::span<const Logprobs> logprobs) {
  GenerationEvent event;
  event.choice = choice_;
  event.prompt_logprobs.assign(logprobs.begin(), logprobs.end());
  listener_->on_event(std::move(event));
  return {};
}

void TextSink::progress(std::uint64_t fed, std::uint64_t total) noexcept {
  listener_->on_progress(fed, total);
}

void TextSink::finish(Outcome outcome) noexcept {
  GenerationEvent event;
  event.choice = choice_;
  event.pieces = parser_.finish();
  ChoiceEnd end;
  end.finish_reason = finish_reason(outcome, parser_.n_tool_calls());
  end.stop_string = parser_.matched_stop();
  end.n_tool_calls = parser_.n_tool_calls();
  end.n_reasoning_tokens = parser_.n_reasoning_tokens();
  end.outcome = std::move(outcome);
  event.end = std::move(end);
  listener_->on_event(std::move(event));
}

}  // namespace kvasir
