// Transcript: everything a request's choices have said so far. Built by the job as events arrive;
// read by the API formats, for whole answers and for what closes a stream. One strand at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvasir/generation.h"

namespace kvasir::server {

struct ChoiceTranscript {
  std::vector<text::OutputPiece> blocks;  // in order; neighbours of one kind are joined
  std::vector<TokenId> tokens;            // those whose text was sent
  std::vector<Logprobs> logprobs;         // one a token, when asked for
  std::vector<Logprobs> prompt_logprobs;
  std::optional<ChoiceEnd> end;

  std::string content() const;
  std::string reasoning() const;
  std::vector<text::ToolCall> tool_calls() const;
};

struct Usage {
  std::uint64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  std::uint64_t reasoning_tokens = 0, draft_tokens = 0, draft_accepted = 0;
  double prompt_ms = 0, predicted_ms = 0;
};

struct Transcript {
  std::string model;           // as it is echoed
  std::int64_t created_s = 0;  // Unix time
  std::uint32_t n_per_prompt = 1;
  std::vector<std::vector<TokenId>> prompts;
  std::vector<ChoiceTranscript> choices;  // [n_prompts × n_per_prompt]
  std::uint64_t n_fed = 0, n_prompt = 0;  // progress of the prompt (SRV-33)

  Usage usage() const;
};

// What changed: the pieces that became certain, and the tokens that travel with them (SAMP-31).
struct StreamEvent {
  std::uint32_t choice = 0;
  std::vector<text::OutputPiece> pieces;
  std::vector<TokenId> tokens;
  std::vector<Logprobs> logprobs;
  bool is_end = false;  // the choice's `end` is set
};

}  // namespace kvasir::server
