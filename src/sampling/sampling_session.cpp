#include "sampling/sampling_session.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "sampling/detail/draw.h"
#include "sampling/detail/filters.h"
#include "sampling/detail/history.h"
#include "sampling/detail/kernels.h"
#include "sampling/detail/logprob_pick.h"
#include "sampling/detail/tone_stage.h"

namespace kvasir::sampling {
namespace {

constexpr std::uint32_t kMaxTopLogprobs = 20;
constexpr float kMaxXtcThreshold = 0.5f;  // above, no second token could pass it (SAMP-10)
constexpr float kScoreLimit =
    1e30f;  // processed scores stay finite, whatever the bias and penalties

// The request's validation says this first and with exact texts; here it guards the library's
// callers.
Status check_options(const SamplingOptions& o, std::uint32_t vocab) {
  const auto within = [](float v, float lo, float hi) {
    return v >= lo && v <= hi;
  };  // false for NaN
  constexpr float kAny = std::numeric_limits<float>::max();
  if (!within(o.temperature, 0, kAny)) return invalid("temperature must be at least 0");
  if (!within(o.top_p, 0, 1)) return invalid("top_p must be between 0 and 1");
  if (!within(o.min_p, 0, 1)) return invalid("min_p must be between 0 and 1");
  if (!within(o.xtc_probability, 0, 1)) return invalid("xtc_probability must be between 0 and 1");
  if (!within(o.xtc_threshold, 0, 1)) return invalid("xtc_threshold must be between 0 and 1");
  if (!within(o.repetition_penalty, 0, kAny))
    return invalid("repetition_penalty must be at least 0");
  if (!within(o.presence_penalty, -kAny, kAny)) return invalid("presence_penalty must be finite");
  if (!within(o.frequency_penalty, -kAny, kAny)) return invalid("frequency_penalty must be finite");
  if (o.top_logprobs > kMaxTopLogprobs) return invalid("top_logprobs must be at most 20");
  for (const auto& [token, bias] : o.logit_bias) {
    if (token >= vocab)
      return invalid("logit_bias token id " + std::to_string(token) + " is out of range");
    if (!within(bias, -kAny, kAny)) return invalid("logit_bias must be a dict of int to float");
  }
  return {};
}

bool repetition_on(const SamplingOptions& o) {
  return o.repetition_penalty != 0.0f && o.repetition_penalty != 1.0f;
}

float bounded(float score) { return std::clamp(score, -kScoreLimit, kScoreLimit); }

}  // namespace

struct SamplingSession::State {
  // A row after the processors, and what is known of it.
  struct Processed {
    std::span<const float> x;
    detail::Peak peak;
    detail::Normalizer norm;  // set when captured or filtered
  };

  State(const SamplingOptions& o, const SessionFacts& facts, detail::ToneStage tone_stage)
      : options(o),
        tone(std::move(tone_stage)),
        vocab(facts.vocab),
        seed(facts.seed),
        eos(facts.eos_ids.begin(), facts.eos_ids.end()),
        spared(eos) {
    spared.insert(spared.end(), facts.newline_ids.begin(), facts.newline_ids.end());
    options.xtc_threshold = std::min(options.xtc_threshold, kMaxXtcThreshold);
    if (repetition_on(o))
      repetition = history.add_window(vocab, o.repetition_context_size, /*with_prompt=*/true);
    if (o.presence_penalty != 0)
      presence = history.add_window(vocab, o.presence_context_size, /*with_prompt=*/false);
    if (o.frequency_penalty != 0)
      frequency = history.add_window(vocab, o.frequency_context_size, /*with_prompt=*/false);
  }

  bool needs_history() const noexcept { return repetition || presence || frequency; }
  bool has_processors() const noexcept { return needs_history() || !options.logit_bias.empty(); }
  bool masks_eos() const noexcept { return options.ignore_eos && !eos.empty(); }
  bool has_filters() const noexcept {
    return (options.top_p > 0 && options.top_p < 1) || options.min_p != 0 ||
           options.xtc_probability > 0 || (options.top_k > 0 && options.top_k < vocab);
  }

  // At a temperature, and nothing else.
  bool draws_plainly() const noexcept {
    return options.temperature > 0 && !tone.is_active() && !has_processors() && !has_filters() &&
           !options.logprobs && !masks_eos();
  }

  std::span<float> own(std::span<const float>& x);
  void process(std::span<float> x);
  Result<Processed> read(std::span<const float> logits);
  void exclude_masked(std::span<const float>& x, const TokenMask* mask);
  void filter(std::span<float> x, const detail::Normalizer& norm, std::uint64_t position);
  TokenId draw(Processed& row, std::uint64_t position);
  std::optional<Logprobs> capture(TokenId token);

  SamplingOptions options;
  detail::ToneStage tone;
  std::uint32_t vocab = 0;
  std::uint64_t seed = 0;
  std::vector<TokenId> eos;
  std::vector<TokenId> spared;  // by XTC: EOS and "\n"
  detail::History history;
  std::optional<std::size_t> repetition, presence, frequency;  // windows of the history
  std::vector<float> scores;                                   // [vocab]
  std::vector<float> lp;  // [vocab], when logprobs are captured
  detail::FilterScratch scratch;
};

// The row in `scores`, where it may be changed; x then views it.
std::span<float> SamplingSession::State::own(std::span<const float>& x) {
  if (x.data() != scores.data()) scores.assign(x.begin(), x.end());
  x = scores;
  return scores;
}

// SAMP-4…7, in order. Each touches few tokens; results stay finite.
void SamplingSession::State::process(std::span<float> x) {
  for (const auto& [token, bias] : options.logit_bias) x[token] = bounded(x[token] + bias);
  if (repetition) {
    const float r = options.repetition_penalty;
    for (const auto& e : history.window(*repetition)) {
      const float s = x[e.token];
      x[e.token] = bounded(s < 0 ? s * r : s / r);
    }
  }
  if (presence) {
    for (const auto& e : history.window(*presence))
      x[e.token] = bounded(x[e.token] - options.presence_penalty);
  }
  if (frequency) {
    for (const auto& e : history.window(*frequency)) {
      x[e.token] = bounded(x[e.token] - options.frequency_penalty * static_cast<float>(e.count));
    }
  }
}

// Everything before the mask: check, processors, and the log-softmax in `lp` when logprobs are
// captured.
Result<SamplingSession::State::Processed> SamplingSession::State::read(
    std::span<const float> logits) {
  KVASIR_CHECK(logits.size() == vocab) << logits.size() << " logits, vocabulary " << vocab;
  Processed row{logits, detail::find_peak(logits), {}};
  if (!row.peak.is_finite) return Error{Errc::device, std::string(kNumericError)};
  if (has_processors()) {
    process(own(row.x));
    row.peak = detail::find_peak(row.x);
  }
  const bool filtered = options.temperature > 0 && !tone.is_active() && has_filters();
  if (options.logprobs || filtered || tone.needs_normalizer())
    row.norm = detail::normalizer_of(row.x, row.peak.max);
  if (options.logprobs) {
    lp.resize(vocab);
    detail::log_softmax(row.x, row.norm.max, row.norm.log_sum, lp);
  }
  return row;
}

void SamplingSession::State::exclude_masked(std::span<const float>& x, const TokenMask* mask) {
  if (mask) {
    scores.resize(vocab);
    detail::apply_mask(x, mask->words, scores);
    x = scores;
  }
  if (masks_eos()) {
    const std::span<float> mine = own(x);
    for (TokenId t : eos) {
      if (t < vocab) mine[t] = detail::kExcluded;
    }
  }
}

// SAMP-8…11, each if it is active.
void SamplingSession::State::filter(std::span<float> x,
                                    const detail::Normalizer& norm,
                                    std::uint64_t position) {
  const SamplingOptions& o = options;
  if (o.top_p > 0 && o.top_p < 1) detail::keep_top_p(x, norm, o.top_p, scratch);
  if (o.min_p != 0) detail::keep_min_p(x, norm, o.min_p, o.min_tokens_to_keep, scratch);
  if (o.xtc_probability > 0 &&
      detail::xtc_uniform(seed, position) <= static_cast<double>(o.xtc_probability)) {
    detail::drop_top_choices(x, o.xtc_threshold, spared, scratch);
  }
  if (o.top_k > 0 && o.top_k < vocab) detail::keep_top_k(x, o.top_k, scratch);
}

// What comes after the mask, at a temperature above 0: a curve on its own, or filters and
// temperature.
TokenId SamplingSession::State::draw(Processed& row, std::uint64_t position) {
  if (tone.is_active()) {
    scores.resize(vocab);
    return tone.draw(row.x, row.peak, row.norm, scores, seed, position, scratch);
  }
  if (has_filters()) {
    filter(own(row.x), row.norm, position);
    row.peak = detail::find_peak(row.x);  // XTC may have dropped it
  }
  return detail::draw_token(row.x, row.peak, options.temperature, seed, position);
}

std::optional<Logprobs> SamplingSession::State::capture(TokenId token) {
  if (!options.logprobs) return std::nullopt;
  return detail::pick_logprobs(lp, token, options.top_logprobs, scratch);
}

SamplingSession::SamplingSession(std::unique_ptr<State> state) noexcept
    : state_(std::move(state)) {}
SamplingSession::SamplingSession(SamplingSession&&) noexcept = default;
SamplingSession& SamplingSession::operator=(SamplingSession&&) noexcept = default;
SamplingSession::~SamplingSession() = default;

Result<SamplingSession> SamplingSession::make(const SamplingOptions& options,
                                              const SessionFacts& facts) {
  if (facts.vocab == 0) return invalid("the vocabulary is empty");
  KVASIR_TRY_DO(check_options(options, facts.vocab));
  KVASIR_TRY(detail::ToneStage tone, detail::ToneStage::make(options));
  return SamplingSession(std::make_unique<State>(options, facts, std::move(tone)));
}

bool SamplingSession::is_plain_greedy() const noexcept {
  return state_->options.temperature == 0 && !state_->has_processors() &&
         !state_->options.logprobs && !state_->masks_eos();
}
PickRow SamplingSession::pick_at(std::uint64_t position) const noexcept {
  const State& s = *state_;
  PickRow row{.seed = s.seed, .position = position};
  if (is_plain_greedy()) {
    row.kind = PickKind::highest;
  } else if (s.draws_plainly()) {
    row.kind = PickKind::drawn;
    row.scale = detail::scale_of(s.options.temperature);
  }
  return row;
}
bool SamplingSession::captures_logprobs() const noexcept { return state_->options.logprobs; }
bool SamplingSession::needs_history() const noexcept { return state_->needs_history(); }

void SamplingSession::seed_history(std::span<const TokenId> prompt,
                                   std::span<const TokenId> emitted) {
  if (state_->needs_history()) state_->history.seed(prompt, emitted);
}

Result<Sampled> SamplingSession::sample(std::span<const float> logits,
                                        std::uint64_t position,
                                        const TokenMask* mask) {
  State& s = *state_;
  KVASIR_TRY(State::Processed row, s.read(logits));
  if (mask || s.masks_eos()) {
    s.exclude_masked(row.x, mask);
    row.peak = detail::find_peak(row.x);
    if (row.peak.max == detail::kExcluded)
      return Error{Errc::unsupported, std::string(kGrammarDeadEnd)};
  }
  const TokenId token = s.options.temperature > 0 ? s.draw(row, position) : row.peak.token;
  return Sampled{token, s.capture(token)};
}

Result<Sampled> SamplingSession::score(std::span<const float> logits, TokenId token) {
  KVASIR_CHECK(token < state_->vocab) << "token " << token << ", vocabulary " << state_->vocab;
  KVASIR_TRY_DO(state_->read(logits));
  return Sampled{token, state_->capture(token)};
}

void SamplingSession::commit(TokenId token) {
  if (state_->needs_history()) state_->history.push(token);
}

void SamplingSession::commit(std::span<const TokenId> tokens) {
  for (TokenId t : tokens) commit(t);
}

SamplingSession::Snapshot SamplingSession::snapshot() const noexcept {
  return {state_->history.size()};
}

void SamplingSession::restore(Snapshot snapshot) noexcept {
  KVASIR_CHECK(snapshot.n_history <= state_->history.size()) << "restore to a later history";
  state_->history.truncate(snapshot.n_history);
}

Result<std::uint64_t> system_seed() {
  std::uint64_t seed = 0;
  ssize_t n = 0;
  do {
    n = getrandom(&seed, sizeof seed, 0);
  } while (n < 0 && errno == EINTR);
  if (n != static_cast<ssize_t>(sizeof seed)) return io_error("no random bytes from the system");
  return seed;
}

}  // namespace kvasir::sampling
