#include "sampling/request_sampling.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "sampling/detail/field_reader.h"
#include "sampling/detail/request_curves.h"

namespace kvasir::sampling {
namespace {

constexpr std::int64_t kMaxTopLogprobs = 20;
constexpr std::int64_t kDefaultMaxTokensChat = 4096;
constexpr std::int64_t kDefaultMaxTokensCompletions = 512;
constexpr const char* kBiasType = "logit_bias must be a dict of int to float";
constexpr double kBiasLimit = 1e30;  // beyond it a bias is a plain "always" or "never"

using detail::at_least;
using detail::at_most;
using detail::clamp_u32;
using detail::FieldReader;
using detail::type_text;
using Bounds = FieldReader::Bounds;

template <class T>
void set_if(std::optional<T>& out, std::optional<T> value) {
  if (value) out = std::move(value);
}

// max_completion_tokens wins over max_tokens, and both over llama.cpp's n_predict (SAMP-42); all
// are validated.
std::optional<std::int64_t> read_max_tokens(FieldReader& in) {
  auto value = in.integer("n_predict", /*also=*/-1);
  if (value == -1) value = kUntilContextFull;
  set_if(value, in.integer("max_tokens"));
  set_if(value, in.integer("max_completion_tokens"));
  return value;
}

// Own names win over llama.cpp's. There a window of 0 means no penalty and -1 the whole context,
// here 0 is the whole history.
void read_repetition(FieldReader& in, PartialSampling& out) {
  set_if(out.repetition_penalty, in.number("repeat_penalty", Bounds::not_negative));
  set_if(out.repetition_penalty, in.number("repetition_penalty", Bounds::not_negative));
  const auto last_n = in.integer("repeat_last_n", /*also=*/-1);
  const auto own = in.count("repetition_context_size");
  if (own) {
    out.repetition_context_size = own;
  } else if (last_n == 0) {
    out.repetition_penalty = 1.0f;
  } else if (last_n) {
    out.repetition_context_size = *last_n < 0 ? 0 : clamp_u32(*last_n);
  }
}

void read_top_logprobs(FieldReader& in, PartialSampling& out) {
  const auto value = in.integer("top_logprobs", /*also=*/-1);
  if (!value || *value < 0) return;
  if (*value > kMaxTopLogprobs) {
    in.fail(at_most("top_logprobs", "20"));
    return;
  }
  out.top_logprobs = static_cast<std::uint32_t>(*value);
}

// Completions: the count of alternatives, or a bool (true: none).
void read_completions_logprobs(FieldReader& in, PartialSampling& out) {
  const json::Value* v = in.find("logprobs");
  if (!v) return;
  if (const bool* b = v->as_bool()) {
    out.logprobs = *b;
    if (*b) out.top_logprobs = 0;
    return;
  }
  const std::int64_t* i = v->as_int();
  if (!i) return void(in.fail(type_text("logprobs", "('int', 'bool')")));
  if (*i < 0) return void(in.fail(at_least("logprobs", "0")));
  if (*i > kMaxTopLogprobs) return void(in.fail(at_most("logprobs", "20")));
  out.logprobs = true;
  out.top_logprobs = static_cast<std::uint32_t>(*i);
}

// Any 64-bit integer, signed or not.
std::optional<std::uint64_t> read_seed(FieldReader& in) {
  const json::Value* v = in.find("seed");
  if (!v || v->is_null()) return std::nullopt;
  if (const std::int64_t* i = v->as_int()) return static_cast<std::uint64_t>(*i);
  if (const std::uint64_t* u = v->as_uint()) return *u;
  return in.fail(type_text("seed", "int"));
}

bool is_integer_text(std::string_view s) {
  if (s.starts_with('-')) s.remove_prefix(1);
  return !s.empty() && s.find_first_not_of("0123456789") == std::string_view::npos;
}

// {"id": bias}. A key that is an integer, but no id of the vocabulary, is out of range (C27), as
// written.
void read_logit_bias(FieldReader& in, std::uint32_t vocab, PartialSampling& out) {
  const json::Value* v = in.find("logit_bias");
  if (!v || v->is_null()) return;
  const json::Object* dict = v->as_object();
  if (!dict) return void(in.fail(kBiasType));
  for (const auto& [key, value] : *dict) {
    if (!is_integer_text(key) || !value.is_number()) return void(in.fail(kBiasType));
  }
  std::vector<std::pair<TokenId, float>> bias;
  bias.reserve(dict->size());
  for (const auto& [key, value] : *dict) {
    TokenId id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    const bool is_negative_zero =
        key.starts_with('-') && key.find_first_not_of("-0") == std::string::npos;
    if (!is_negative_zero &&
        (error != std::errc{} || end != key.data() + key.size() || id >= vocab)) {
      return void(in.fail("logit_bias token id " + key + " is out of range"));
    }
    bias.emplace_back(id,
                      static_cast<float>(std::clamp(*value.as_number(), -kBiasLimit, kBiasLimit)));
  }
  // Of equal ids the last wins: stable order, then from the back.
  const auto by_id = [](const auto& a, const auto& b) { return a.first < b.first; };
  const auto same_id = [](const auto& a, const auto& b) { return a.first == b.first; };
  std::stable_sort(bias.begin(), bias.end(), by_id);
  bias.erase(bias.begin(), std::unique(bias.rbegin(), bias.rend(), same_id).base());
  out.logit_bias = std::move(bias);
}

}  // namespace

Result<PartialSampling> parse_sampling(const json::Value& body,
                                       Surface surface,
                                       std::uint32_t vocab) {
  FieldReader in(body);
  PartialSampling out;
  out.stream = in.boolean("stream");
  if (surface == Surface::chat) out.logprobs = in.boolean("logprobs");
  out.max_tokens = read_max_tokens(in);
  out.top_k = in.count("top_k");
  out.num_draft_tokens = in.count("num_draft_tokens");
  out.temperature = in.number("temperature", Bounds::not_negative);
  read_repetition(in, out);
  out.presence_context_size = in.count("presence_context_size");
  out.frequency_context_size = in.count("frequency_context_size");
  out.top_p = in.number("top_p", Bounds::unit);
  out.min_p = in.number("min_p", Bounds::unit);
  out.xtc_probability = in.number("xtc_probability", Bounds::unit);
  out.xtc_threshold = in.number("xtc_threshold", Bounds::unit);
  out.presence_penalty = in.number("presence_penalty", Bounds::none);
  out.frequency_penalty = in.number("frequency_penalty", Bounds::none);
  read_top_logprobs(in, out);
  if (surface == Surface::completions) read_completions_logprobs(in, out);
  out.seed = read_seed(in);
  read_logit_bias(in, vocab, out);
  out.ignore_eos = in.boolean("ignore_eos");
  detail::read_curves(in, out);
  KVASIR_TRY_DO(in.status());
  return out;
}

PartialSampling from_generation_config(const json::Value& config) {
  const auto number = [&](std::string_view field, Bounds bounds) {
    FieldReader in(config);  // one a field: a malformed one does not hide the others
    return in.number(field, bounds);
  };
  const auto count = [&](std::string_view field) {
    FieldReader in(config);
    return in.integer(field);
  };
  PartialSampling out;
  out.temperature = number("temperature", Bounds::not_negative);
  out.top_p = number("top_p", Bounds::unit);
  out.min_p = number("min_p", Bounds::unit);
  out.repetition_penalty = number("repetition_penalty", Bounds::not_negative);
  out.presence_penalty = number("presence_penalty", Bounds::none);
  out.frequency_penalty = number("frequency_penalty", Bounds::none);
  if (const auto k = count("top_k")) out.top_k = clamp_u32(*k);
  out.max_tokens = count("max_new_tokens");
  return out;
}

ResolvedSampling merge_sampling(std::span<const PartialSampling> layers, Surface surface) {
  ResolvedSampling out;
  SamplingOptions& o = out.options;
  const auto pick = [&](auto field, auto& to) {
    for (const PartialSampling& layer : layers) {
      if (!(layer.*field)) continue;
      to = *(layer.*field);
      return true;
    }
    return false;
  };
  using P = PartialSampling;
  pick(&P::temperature, o.temperature);
  pick(&P::top_p, o.top_p);
  pick(&P::min_p, o.min_p);
  pick(&P::top_k, o.top_k);
  pick(&P::xtc_probability, o.xtc_probability);
  pick(&P::xtc_threshold, o.xtc_threshold);
  pick(&P::repetition_penalty, o.repetition_penalty);
  pick(&P::presence_penalty, o.presence_penalty);
  pick(&P::frequency_penalty, o.frequency_penalty);
  pick(&P::repetition_context_size, o.repetition_context_size);
  pick(&P::presence_context_size, o.presence_context_size);
  pick(&P::frequency_context_size, o.frequency_context_size);
  pick(&P::logit_bias, o.logit_bias);
  pick(&P::seed, o.seed);
  pick(&P::logprobs, o.logprobs);
  pick(&P::top_logprobs, o.top_logprobs);
  pick(&P::ignore_eos, o.ignore_eos);
  detail::merge_curves(layers, o);
  pick(&P::stream, out.stream);
  pick(&P::num_draft_tokens, out.num_draft_tokens);
  out.max_tokens_explicit = pick(&P::max_tokens, out.max_tokens);
  if (!out.max_tokens_explicit) {
    out.max_tokens =
        surface == Surface::chat ? kDefaultMaxTokensChat : kDefaultMaxTokensCompletions;
  }
  return out;
}

}  // namespace kvasir::sampling
