// Sink: who receives a request's tokens and its outcome (EXE-5…7, SCH-43). The engine calls it on
// the engine's thread, one token a call, rows in row order; it must not block. Invariant: finish is
// called exactly once, last; EOS never arrives.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "contract/outcome.h"
#include "contract/sampling.h"

namespace kvasir {

enum class SinkReply : std::uint8_t { more, stop };

struct HiddenRows {
  std::uint64_t first = 0;        // prompt position of the first row
  std::size_t width = 0;          // of a row
  std::span<const float> values;  // [n_rows, width], valid during the call
};

class Sink {
 public:
  virtual ~Sink() = default;
  // `stop` ends the row right there (a stop string, a client that has enough); an error fails this
  // row only. logprobs is empty unless they were asked for, else one a token.
  virtual Result<SinkReply> commit(std::span<const TokenId> tokens,
                                   std::span<const Logprobs> logprobs) = 0;
  // Prompt logprobs (SAMP-32), in prompt order, before the first commit: entry i belongs to prompt
  // token i + 1 of those not yet reported. Called only when the options ask.
  virtual Status commit_prompt(std::span<const Logprobs> logprobs) {
    (void)logprobs;
    return {};
  }
  // The wanted hidden rows of an embedding request (MOD-61), in prompt order. An error fails this
  // row only.
  virtual Status commit_hidden(const HiddenRows& rows) {
    (void)rows;
    return {};
  }
  // It waits in the queue: nothing about the request can be refused any more.
  virtual void queued() noexcept {}
  // The row was admitted (the first call), or a part of its prompt ran: `fed` of `total` prompt
  // tokens are done, those found in the cache included. fed == total comes before the first token.
  virtual void progress(std::uint64_t fed, std::uint64_t total) noexcept {
    (void)fed;
    (void)total;
  }
  // A paused row is not fed until its consumer drains (SCH-43).
  virtual bool is_paused() const noexcept { return false; }
  virtual void finish(Outcome outcome) noexcept = 0;
};

}  // namespace kvasir
