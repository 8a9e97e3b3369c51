#include "server/endpoints/token_ledger.h"

#include <utility>

namespace kvasir::server {

void TokenLedger::settle(const GenerationEvent& event, StreamEvent& out) {
  has_logprobs_ |= !event.logprobs.empty();
  is_stopped_ |= event.is_stopped;
  for (std::size_t i = 0; i < event.tokens.size(); ++i) {
    const TokenId token = event.tokens[i];
    Logprobs logprobs = i < event.logprobs.size() ? event.logprobs[i] : Logprobs{};
    held_.push_back({token, std::move(logprobs), has_stops_ ? bytes_of_(token) : 0});
  }
  bool has_call = false;
  for (const text::OutputPiece& piece : event.pieces) {
    credit_ += static_cast<std::ptrdiff_t>(piece.text.size());
    has_call |= piece.kind == text::OutputKind::tool_call;
  }
  const bool is_over = event.end.has_value() && !is_stopped_;
  if (is_over || has_call || (!has_stops_ && !event.pieces.empty())) {
    while (!held_.empty()) release(out);
    credit_ = 0;
    return;
  }
  if (event.pieces.empty()) return;
  while (!held_.empty() && (credit_ > 0 || held_.front().n_bytes == 0)) {
    credit_ -= static_cast<std::ptrdiff_t>(held_.front().n_bytes);
    release(out);
  }
}

void TokenLedger::release(StreamEvent& out) {
  Held& first = held_.front();
  out.tokens.push_back(first.token);
  if (has_logprobs_) out.logprobs.push_back(std::move(first.logprobs));
  held_.pop_front();
}

}  // namespace kvasir::server
