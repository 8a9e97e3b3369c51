// How a request ended and what it cost (EXE-3, EXE-22, EXE-23). Made once a request by the engine,
// on every path; moved to the sink. Values only, no thread rule.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "contract/cancellation.h"

namespace kvasir {

enum class FinishReason : std::uint8_t { stop, length, tool_calls };

constexpr std::string_view name_of(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::tool_calls:
      return "tool_calls";
  }
  return "stop";
}

struct Completed {
  FinishReason reason = FinishReason::stop;
};

struct Cancelled {
  CancelReason reason = CancelReason::requested;
};

struct Failed {
  std::string code;  // the API's error code: numeric_error, engine_failed, sink_failed…
  std::string message;
  std::vector<Error> also;  // errors of the cleanup that followed; the first error stays primary
};

struct Stats {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t cached_tokens =
      0;  // of the prompt, taken from the prefix cache or the caller's state
  std::uint64_t generated_tokens = 0;  // delivered or offered to the sink
  std::uint64_t cache_tokens = 0;      // prompt + exactly the tokens whose KV is committed
  std::uint64_t steps = 0;             // forwards the row took part in
  bool is_admitted = false;            // it had a row; else it ended while it waited
  double queue_ms = 0;                 // submission → admission
  double prefill_ms = 0;               // admission → first token delivered (EXE-8)
  double decode_ms = 0;                // from there to the end
  std::uint64_t draft_tokens = 0;      // proposed and verified (SPEC-40)
  std::uint64_t draft_accepted = 0;

  double prefill_tokens_per_s() const noexcept {
    const auto fed = static_cast<double>(prompt_tokens - cached_tokens);
    return prefill_ms > 0 ? fed * 1000.0 / prefill_ms : 0.0;
  }
  // The first token belongs to the prompt's clock.
  double decode_tokens_per_s() const noexcept {
    if (decode_ms <= 0 || generated_tokens < 2) return 0.0;
    return static_cast<double>(generated_tokens - 1) * 1000.0 / decode_ms;
  }
};

struct Outcome {
  std::variant<Completed, Cancelled, Failed> end;
  Stats stats;
  std::uint64_t seed = 0;          // the explicit one, or the one drawn for the request (SAMP-22)
  std::vector<TokenId> forwarded;  // generated tokens whose KV is in the state, in order

  const Completed* completed() const noexcept { return std::get_if<Completed>(&end); }
  const Cancelled* cancelled() const noexcept { return std::get_if<Cancelled>(&end); }
  const Failed* failed() const noexcept { return std::get_if<Failed>(&end); }
};

}  // namespace kvasir
