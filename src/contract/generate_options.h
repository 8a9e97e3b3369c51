// GenerateOptions: all that a request asks of the engine (EXE-1). Checked by Engine::submit, then
// owned by the request and never re-read from elsewhere. Values and handles; no thread rule.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "contract/cancellation.h"
#include "contract/draft.h"
#include "contract/sampling.h"
#include "contract/token_constraint.h"

namespace kvasir {

inline constexpr std::uint32_t kDefaultMaxTokens = 512;

// SRV-14's text, and its counterpart.
inline constexpr std::string_view kNoEmbeddings = "this model does not produce embeddings",
                                  kNoText = "this model produces embeddings, not text";

// Whose hidden rows a request wants instead of tokens.
enum class WantedHidden : std::uint8_t { last, all };

struct GenerateOptions {
  std::vector<TokenId> prompt;  // at least one
  std::optional<std::uint32_t>
      max_tokens;  // as given: 0 runs the prompt and emits nothing. Unset: the default below
  std::uint32_t default_max_tokens = kDefaultMaxTokens;  // lowered to what fits, down to 1 (FIT-20)
  SamplingOptions sampling;
  std::optional<std::vector<TokenId>> eos_ids;  // unset: the model's
  std::uint32_t prefill_chunk = 2048;           // most prompt tokens a step, > 0
  std::vector<std::uint32_t>
      snapshot_at;  // prompt positions whose state is kept for reuse (EXE-39, CACHE-13)
  std::optional<KvRowId> state;  // the caller's (Engine::create_state), covering a prefix of prompt
  bool prompt_cache = true;      // false: neither takes from nor puts into the prefix cache
  std::string cache_namespace;   // empty: the engine's (KV-42)
  std::optional<std::uint32_t>
      prompt_logprobs;  // top k of every prompt position (EXE-36); 0: the token's own only
  std::shared_ptr<const TokenConstraint>
      constraint;                    // shared by the choices of a request; each row clones it
  DraftProvider* draft = nullptr;    // lives as long as the engine; none: plain steps
  std::uint32_t n_draft_tokens = 3;  // most drafts a round; 0: off
  // Set: an embedding request (EXE-41). Its prompt is run, these rows of it go to
  // Sink::commit_hidden, nothing is sampled or cached; it ends with `length`.
  std::optional<WantedHidden> hidden;
  CancellationToken cancellation;
  std::optional<Clock::Duration> deadline;  // absolute, of the engine's clock
};

}  // namespace kvasir
