// What a request asks of sampling (SAMP-1…15, 22, 30) and what comes out. Values only.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace kvasir {

// Where the HLG curve is centred, before pivot_offset is taken off.
enum class HlgPivot : std::uint8_t {
  top,      // the likeliest token's lp
  entropy,  // Σ p·lp
  median    // the lp at which the descending cumulative mass first reaches 0.5
};

// SAMP-13: log shoulder, linear middle, log toe; in nats.
struct HlgCurve {
  float width = 4.0f;         // half of the middle; ∞: the temperature path
  float shoulder = 4.0f;      // <= 0: none
  float toe = 6.0f;           // <= 0: none
  float pivot_offset = 6.0f;  // the centre's distance below the pivot
  HlgPivot pivot = HlgPivot::top;
  float gain = 0.0f;  // 0: 1 / temperature
};

// SAMP-14: a token of probability x_pct shall weigh y_pct.
struct CurvePoint {
  double x_pct = 0.0;
  double y_pct = 0.0;
};

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
  // At most one of the two replaces temperature and filters; temperature 0 stays greedy (SAMP-15).
  std::optional<HlgCurve> hlg = std::nullopt;
  std::vector<CurvePoint> curve = {};  // empty: none
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
