// From a JSON request to sampling options (SAMP-40…42): validation with exact texts, aliases, and
// the merge of request, server flags, generation_config.json and family defaults. Pure functions;
// called by the server's endpoints and the library.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "contract/sampling.h"
#include "json/json.h"

namespace kvasir::sampling {

enum class Surface : std::uint8_t {
  chat,
  completions
};  // they differ in `logprobs` and in the built-in max_tokens

inline constexpr std::int64_t kUntilContextFull =
    std::numeric_limits<std::int64_t>::max();  // n_predict -1

// What one layer says of the HLG curve (SAMP-13).
struct PartialHlg {
  std::optional<bool> enabled;
  std::optional<float> width, shoulder, toe, pivot_offset, gain;
  std::optional<HlgPivot> pivot;
};

// One layer of options: what it does not say is unset.
struct PartialSampling {
  std::optional<float> temperature, top_p, min_p;
  std::optional<std::uint32_t> top_k;
  std::optional<float> xtc_probability, xtc_threshold;
  std::optional<float> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<std::uint32_t> repetition_context_size, presence_context_size,
      frequency_context_size;
  std::optional<std::vector<std::pair<TokenId, float>>> logit_bias;  // ascending ids, each once
  std::optional<std::uint64_t> seed;
  std::optional<bool> logprobs;
  std::optional<std::uint32_t> top_logprobs;
  std::optional<bool> ignore_eos;
  PartialHlg hlg;
  std::optional<std::vector<CurvePoint>> curve;
  std::optional<bool> stream;
  std::optional<std::int64_t> max_tokens;  // kUntilContextFull: no limit of its own
  std::optional<std::uint32_t> num_draft_tokens;
};

struct ResolvedSampling {
  SamplingOptions options;
  std::int64_t max_tokens = 0;       // not yet lowered to fit the context
  bool max_tokens_explicit = false;  // some layer named it
  bool stream = false;
  std::optional<std::uint32_t> num_draft_tokens;
};

// The sampling fields of a request body. invalid_argument with the texts of SAMP-41, 4, 14 and 15;
// fields are checked in the order of SAMP-41's table, then the curves; unknown ones are ignored.
// `vocab`: the model's vocabulary size.
Result<PartialSampling> parse_sampling(const json::Value& body,
                                       Surface surface,
                                       std::uint32_t vocab);

// The sampling fields of a model's generation_config.json; what is malformed or out of bounds there
// counts as unset.
PartialSampling from_generation_config(const json::Value& config);

// Per field the first layer that says something wins (request, server flags, generation config,
// family), else the built-in default (SAMP-40); the fields of hlg one by one. Of hlg and curve, the
// first layer that enables the one or names the other decides.
ResolvedSampling merge_sampling(std::span<const PartialSampling> layers, Surface surface);

}  // namespace kvasir::sampling
