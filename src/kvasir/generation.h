// What the library is asked for and what comes back while it runs. Values, and the listener through
// which a running generation speaks. Shared by the server, the command line and C++ callers.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "contract/outcome.h"
#include "contract/sampling.h"
#include "json/json.h"
#include "text/output_parser.h"

namespace kvasir {

struct GenerateRequest {
  // One of: text, used as it is; token ids; a conversation, rendered by the model's template.
  std::string prompt;
  std::vector<TokenId> prompt_tokens;
  json::Array messages;

  // Of conversations.
  json::Array tools;                // OpenAI's shape; empty: none are shown, no calls are parsed
  json::Object template_variables;  // enable_thinking, …
  bool continue_final_message = false;  // TXT-31: the answer goes on with the last message
  bool parallel_tool_calls = true;
  bool splits_reasoning = true;                   // false: reasoning stays in the content
  std::optional<std::uint32_t> reasoning_budget;  // reasoning tokens at most (TXT-52)

  std::uint32_t n = 1;                      // choices; they share the prompt's KV
  std::optional<std::uint32_t> max_tokens;  // unset: 512, 4096 for chat, lowered to fit
  std::optional<std::uint32_t>
      default_max_tokens;           // in the place of 512 and 4096, likewise lowered
  bool until_context_full = false;  // unset max_tokens then means all that fits
  SamplingOptions sampling;
  std::vector<std::string> stops;                    // TXT-60
  bool parse_special = false;                        // text prompt only: match special tokens in it
  std::optional<std::uint32_t> prompt_logprobs;      // top k of the prompt's own tokens (SAMP-32)
  bool uses_cache = true;                            // false: neither read nor publish
  std::optional<std::chrono::milliseconds> timeout;  // SCH-41
};

struct ChoiceEnd {
  // "stop", "length", "tool_calls", "cancelled", "failed". A deadline counts as "length" once the
  // row ran (SCH-41).
  std::string finish_reason;
  std::optional<std::string> stop_string;  // the one that matched
  std::uint32_t n_tool_calls = 0;
  std::uint64_t n_reasoning_tokens = 0;
  Outcome outcome;
};

// A step's worth of one choice. logprobs: one a token when asked for; pieces may be fewer than the
// tokens while text is held back.
struct GenerationEvent {
  std::uint32_t choice = 0;
  std::vector<text::OutputPiece> pieces;
  std::vector<TokenId> tokens;
  std::vector<Logprobs> logprobs;
  bool is_stopped = false;                // a stop string ended with these tokens
  std::vector<Logprobs> prompt_logprobs;  // of the prompt from its second token on, in order
  std::optional<ChoiceEnd> end;           // the choice's last event
};

// Called on the engine's thread; must not block.
class GenerationListener {
 public:
  virtual ~GenerationListener() = default;
  // Accepted: it waits for a row, and can no longer be refused.
  virtual void on_queued() noexcept {}
  // Admitted (the first call), and whenever a part of the prompt ran.
  virtual void on_progress(std::uint64_t fed, std::uint64_t total) noexcept {
    (void)fed;
    (void)total;
  }
  virtual void on_event(GenerationEvent event) noexcept = 0;
  // True: the rows rest until it is false and Engine::wake was called (SCH-43).
  virtual bool is_paused() const noexcept { return false; }
};

// A started generation.
struct Generation {
  std::vector<RequestId> ids;   // [n]
  std::vector<TokenId> prompt;  // as fed
};

// The blocking form's view of an event, and its result.
struct TextDelta {
  std::uint32_t choice = 0;
  text::OutputKind kind = text::OutputKind::content;
  std::string_view text;            // complete UTF-8
  std::span<const TokenId> tokens;  // with the first delta that they produced
};

struct Choice {
  std::string text;
  std::string reasoning;
  std::vector<text::ToolCall> tool_calls;
  std::vector<TokenId> tokens;
  std::vector<Logprobs> logprobs;
  std::string finish_reason;
  std::string error;  // why, when failed
  std::uint64_t seed = 0;
};

struct Generated {
  std::vector<Choice> choices;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t cached_tokens = 0;     // of the prompt, found in the prefix cache (CACHE-14)
  std::uint64_t generated_tokens = 0;  // over all choices
  double prefill_ms = 0;
  double decode_ms = 0;
};

}  // namespace kvasir
