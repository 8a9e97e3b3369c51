// TokenLedger: which tokens travel with which text (SAMP-31). Tokens wait until text of theirs is
// sent; what a stop string cut off is never reported. One choice's stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "server/endpoints/transcript.h"

namespace kvasir::server {

class TokenLedger {
 public:
  // has_stops: text may be held back for stop strings, so bytes are counted; else tokens leave with
  // the next piece. bytes_of: a token's length in text.
  TokenLedger(bool has_stops, std::function<std::size_t(TokenId)> bytes_of)
      : has_stops_(has_stops), bytes_of_(std::move(bytes_of)) {}

  // Moves the tokens that belong to `event`'s pieces into `out`.
  void settle(const GenerationEvent& event, StreamEvent& out);

 private:
  struct Held {
    TokenId token = 0;
    Logprobs logprobs;
    std::size_t n_bytes = 0;
  };
  void release(StreamEvent& out);

  bool has_stops_;
  std::function<std::size_t(TokenId)> bytes_of_;
  std::deque<Held> held_;
  std::ptrdiff_t credit_ = 0;  // bytes sent less the bytes of the tokens that were told with them
  bool has_logprobs_ = false;
  bool is_stopped_ = false;
};

}  // namespace kvasir::server
