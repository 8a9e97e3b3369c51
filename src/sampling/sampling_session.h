// SamplingSession: one row's sampling (SAMP-1…15, 20-23, 30): logits in, token and logprobs out. A
// result depends on the logits, the committed history, the options and the request position only
// (SAMP-20), so batching, chunking and rollback cannot move it. Called by the engine's step and by
// verification of drafts. One thread at a time; sessions share nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"
#include "contract/sampling.h"
#include "tensor/pick_row.h"

namespace kvasir::sampling {

// Error::what of the two ways in which a row can fail; they are the API's error codes too (SRV-3).
inline constexpr std::string_view kNumericError =
    "numeric_error";  // a logit is NaN or infinite (EXE-25)
inline constexpr std::string_view kGrammarDeadEnd =
    "grammar_dead_end";  // the mask leaves no token (SAMP-3)

// Which tokens are allowed: bit t % 32 of words[t / 32]. Tokens past the last word are not allowed.
struct TokenMask {
  std::span<const std::uint32_t> words;
};

// What the model and the request fix for the whole session; copied by make().
struct SessionFacts {
  std::uint32_t vocab = 0;               // = the logits' length
  std::span<const TokenId> eos_ids;      // spared by XTC; masked by ignore_eos
  std::span<const TokenId> newline_ids;  // the tokens of "\n": spared by XTC
  std::uint64_t seed =
      0;  // the request's, or system_seed() when it gave none; + i for choice i (SAMP-22)
};

class SamplingSession {
 public:
  // Mark in the history; O(1). Valid while the history is at least that long.
  struct Snapshot {
    std::size_t n_history = 0;
  };

  // invalid_argument: a logit_bias id outside the vocabulary (text of SAMP-4), an option that is
  // NaN or out of bounds, or the texts of SAMP-14 and 15.
  static Result<SamplingSession> make(const SamplingOptions& options, const SessionFacts& facts);
  SamplingSession(SamplingSession&&) noexcept;
  SamplingSession& operator=(SamplingSession&&) noexcept;
  ~SamplingSession();

  // Temperature 0, no processors, no logprobs, no masked EOS: without a TokenMask, sample() is
  // argmax with ties to the lowest id, and may be replaced by a fused one (SAMP-2).
  bool is_plain_greedy() const noexcept;
  // What sample() without a TokenMask does at that position, as a PickRow for whoever has the
  // scores: plain greedy, or a draw at a temperature alone. Kind `none`: only sample() can.
  PickRow pick_at(std::uint64_t position) const noexcept;
  bool captures_logprobs() const noexcept;
  bool needs_history() const noexcept;  // else seed_history() and commit() do nothing

  // Replaces the history: the prompt, then what was emitted so far (resume; EXE-12).
  void seed_history(std::span<const TokenId> prompt, std::span<const TokenId> emitted);

  // Logits [vocab] → the token at `position` of the request's generation (0 = first generated;
  // SAMP-21). Leaves the history alone: the same call again gives the same answer. Errors:
  // kNumericError, kGrammarDeadEnd.
  Result<Sampled> sample(std::span<const float> logits,
                         std::uint64_t position,
                         const TokenMask* mask = nullptr);

  // The same record for a token that was not drawn here (forced by a grammar): its logprobs when
  // they are captured, after processors (SAMP-30). Errors: kNumericError.
  Result<Sampled> score(std::span<const float> logits, TokenId token);

  void commit(TokenId token);                    // appends to the history
  void commit(std::span<const TokenId> tokens);  // in order, as one by one
  Snapshot snapshot() const noexcept;
  void restore(Snapshot snapshot) noexcept;  // forgets what was committed since

 private:
  struct State;
  explicit SamplingSession(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

// 64 bits from the operating system, for a request without a seed (SAMP-22). Errors: io.
Result<std::uint64_t> system_seed();

}  // namespace kvasir::sampling
