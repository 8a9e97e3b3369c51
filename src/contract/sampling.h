// What a request asks of sampling (SAMP-1…12, 22, 30) and what comes out. Values only.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace kvasir {

struct SamplingOptions {
  float temperature = 0.7f;  // 0: greedy
  float top_p = 1.0f;        // active in (0, 1)
  float min_p = 0.0f;        // active if != 0
  std::uint32_t min_tokens_to_keep = 1;
  std::uint32_t top_k = 0;  // 0: off
  float xtc_probability = 0.0f;
  float xtc_threshold = 0.1f;
  float repetition_penalty = 1.0f;             // 0 or 1: off
  std::uint32_t repetition_context_size = 20;  // last n tokens of prompt + emitted; 0: all
  float presence_penalty = 0.0f;
  std::uint32_t presence_context_size = 0;  // of emitted tokens
  float frequency_penalty = 0.0f;
  std::uint32_t frequency_context_size = 0;
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::optional<std::uint64_t> seed;  // unset: the engine draws one from the system (SAMP-22)
  bool logprobs = false;
  std::uint32_t top_logprobs = 0;  // 0..20
  bool ignore_eos = false;         // EOS ids are masked
};

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0.0f;
};

struct Logprobs {
  float logprob = 0.0f;           // of the emitted token
  std::vector<TokenLogprob> top;  // descending, ties → lowest id
};

struct Sampled {
  TokenId token = 0;
  std::optional<Logprobs> logprobs;
};

}  // namespace kvasir
