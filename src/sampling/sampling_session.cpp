#include "sampling/sampling_session.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "sampling/detail/draw.h"
#include "sampling/detail/filters.h"
#include "sampling/detail/history.h"
#include "sampling/detail/kernels.h"
#include "sampling/detail/logprob_pick.h"

namespace kvasir::sampling {
namespace {

constexpr std::uint32_t kMaxTopLogprobs = 20;
constexpr float kMaxXtcThreshold = 0.5f;  // above, no second token could pass it (SAMP-10)
constexpr float kScoreLimit = 1e30f;      // processed scores stay finite, whatever the bias and penalties

// The request's validation says this first and with exact texts; here it guards the library's callers.
Status check_options(const SamplingOptions& o, std::uint32_t vocab) {
  const auto within = [](float v, float lo, float hi) { return v >= lo && v <= hi; };  // false for NaN
  constexpr float kAny = std::numeric_limits<float>::max();
  if (!within(o.temperature, 0, kAny)) return invalid("temperature must be at least 0");
  if (!within(o.top_p, 0, 1)) return invalid("top_p must be between 0 and 1");
  if (!within(o.min_p, 0, 1)) return invalid("min_p must be between 0 and 1");
  if (!within(o.xtc_probability, 0, 1)) return invalid("xtc_probability must be between 0 and 1");
  if (!within(o.xtc_threshold, 0, 1)) return invalid("xtc_threshold must be between 0 and 1");
  if (!within(o.repetition_penalty, 0, kAny)) return invalid("repetition_penalty must be at least 0");
  if (!within(o.presence_penalty, -kAny, kAny)) return invalid("presence_penalty must be finite");
  if (!within(o.frequency_penalty, -kAny, kAny)) return invalid("frequency_penalty must be finite");
  if (o.top_logprobs > kMaxTopLogprobs) return invalid("top_logprobs must be at most 20");
  for (const auto& [token, bias] : o.logit_bias) {
    if (token >= vocab) return invalid("logit_bias token id " + std::to_string(token) + " is out of range");
    if (!within(bias, -kAny, kAny)) return invalid("logit_bias must be a dict of int to float");
  }
  return {};
}

bool repetition_on(const SamplingOptions& o) { return o.repetition_penalty != 0.0f && o.repetition_penalty != 1.0f; }

float bounded(float score) { return std::clamp(score, -kScoreLimit, kScoreLimit); }

}  // namespace

struct SamplingSession::State {
  State(const SamplingOptions& o, const SessionFacts& facts)
      : options(o), vocab(facts.vocab), seed(facts.seed), eos(facts.eos_ids.begin(), facts.eos_ids.end()), spared(eos) {
    spared.insert(spared.end(), facts.newline_ids.begin(), facts.newline_ids.end());
    options.xtc_threshold = std::min(options.xtc_threshold, kMaxXtcThreshold);
    if (repetition_on(o)) repetition = history.add_window(vocab, o.repetition_context_size, /*with_prompt=*/true);
    if (o.presence_penalty != 0) presence = history.add_window(vocab, o.presence_context_size, /*with_prompt=*/false);
    if (o.frequency_penalty != 0) frequency = history.add_window(vocab, o.frequency_context_size, /*with_prompt=*/false);
  }

  bool needs_history() const noexcept { return repetition || presence || frequency; }
  bool has_processors() const noexcept { return needs_history() || !options.logit_bias.empty(); }
  bool masks_eos() const noexcept { return options.ignore_eos && !eos.empty(); }
  bool has_filters() const noexcept {
    return (options.top_p > 0 && options.top_p < 1) || options.min_p != 0 || options.xtc_probability > 0 ||
           (options.top_k > 0 && options.top_k < vocab);
  }

  std::span<float> writable(std::span<const float>& x);
  void process();
  Status exclude_masked(std::span<const float>& x, const TokenMask* mask);
  void filter(const detail::Normalizer& norm, std::uint64_t position);
  Result<detail::Peak> prepare(std::span<const float> logits, std::span<const float>& x);
  Result<Sampled> record(std::span<const float> logits, TokenId token, std::span<const float> processed);

  SamplingOptions options;
  std::uint32_t vocab = 0;
  std::uint64_t seed = 0;
  std::vector<TokenId> eos;
  std::vector<TokenId> spared;  // by XTC: EOS and "\n"
  detail::History history;
  std::optional<std::size_t> repetition, presence, frequency;  // windows of the history
  std::vector<float> scores;                                   // [vocab]
  std::vector<float> lp;                                       // [vocab], when logprobs are captured
  detail::FilterScratch scratch;
};
