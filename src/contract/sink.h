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
  // A paused row is not fed until its consumer drains (SCH-43).
  virtual bool is_paused() const noexcept { return false; }
  virtual void finish(Outcome outcome) noexcept = 0;
};

}  // namespace kvasir
