#include "app/cli/common_flags.h"

#include <cmath>
#include <cstdio>

#include "app/cli/verbs.h"

namespace kvasir::app {

void add_open_flags(CLI::App& verb, OpenFlags& flags) {
  OpenOptions& o = flags.options;
  verb.add_option("model,-m,--model", o.model,
                  "Model: a folder with config.json and safetensors, or a .gguf file")
      ->required();
  verb.add_option("--backend", flags.backend, "auto, cpu, ref or ref:mirror")
      ->capture_default_str();
  verb.add_option("--isa", o.isa, "cpu: auto, portable or avx512")->capture_default_str();
  verb.add_option("-t,--threads", o.n_threads, "Threads; 0: every core this process may use")
      ->capture_default_str();
  verb.add_option("-c,--context-length,--ctx-size,--ctx", o.context_length,
                  "Tokens of context; 0: the model's");
  verb.add_option("--kv-dtype", flags.kv_type, "KV state: bf16 or f32 (default bf16; f32 on ref)");
  verb.add_option("--kv-block-size", o.block_tokens,
                  "Tokens of a KV block: a power of two, 8 to 512")
      ->capture_default_str();
  verb.add_option("--kv-budget", flags.kv_budget_gb,
                  "Memory for KV state in GB; 0: a quarter of what is available");
  verb.add_option("--prompt-cache", flags.prompt_cache_gib,
                  "Prefix cache in GiB, inside the KV memory; 0: off")
      ->capture_default_str();
  verb.add_option("--batch", o.max_rows, "Requests that run at once")->capture_default_str();
  verb.add_option("--max-step-tokens", o.max_step_tokens, "Tokens one step may feed")
      ->capture_default_str();
  verb.add_option("--prefill-share", o.prefill_share, "Prompt tokens a step beside decoding rows")
      ->capture_default_str();
}

Result<OpenOptions> resolve(const OpenFlags& flags) {
  OpenOptions options = flags.options;
  KVASIR_TRY(options.backend, parse_backend(flags.backend));
  if (!flags.kv_type.empty()) {
    if (flags.kv_type != "bf16" && flags.kv_type != "f32")
      return invalid("--kv-dtype must be bf16 or f32");
    options.kv_type = flags.kv_type == "bf16" ? DType::bf16 : DType::f32;
  }
  if (!(flags.kv_budget_gb >= 0 && flags.kv_budget_gb < 1e9))
    return invalid("--kv-budget must be a size ≥ 0");
  if (!(flags.prompt_cache_gib >= 0 && flags.prompt_cache_gib < 1e9))
    return invalid("--prompt-cache must be a size ≥ 0");
  if (options.n_threads < 0 || options.n_threads > 1024)
    return invalid("--threads must be 0 to 1024");
  options.kv_budget_bytes = static_cast<std::uint64_t>(flags.kv_budget_gb * 1e9);
  options.prompt_cache_bytes = static_cast<std::uint64_t>(flags.prompt_cache_gib * 0x1p30);
  return options;
}

void add_sampling_flags(CLI::App& verb, SamplingFlags& flags) {
  flags.verb = &verb;
  SamplingOptions& s = flags.over;
  verb.add_option("--temp,--temperature", s.temperature, "Temperature; 0: greedy")
      ->check(CLI::NonNegativeNumber);
  verb.add_option("--top-p", s.top_p, "Nucleus; 0 or 1: off")->check(CLI::Range(0.0, 1.0));
  verb.add_option("--min-p", s.min_p, "Least probability relative to the best; 0: off")
      ->check(CLI::Range(0.0, 1.0));
  verb.add_option("--top-k", s.top_k, "Best k tokens; 0: off");
  verb.add_option("--xtc-probability", s.xtc_probability, "Chance of excluding top choices")
      ->check(CLI::Range(0.0, 1.0));
  verb.add_option("--xtc-threshold", s.xtc_threshold, "Threshold of that")
      ->check(CLI::Range(0.0, 1.0));
  verb.add_option("--repetition-penalty", s.repetition_penalty,
                  "Over the last 20 tokens; 0 or 1: off")
      ->check(CLI::NonNegativeNumber);
  verb.add_option("--presence-penalty", s.presence_penalty,
                  "Subtracted once from tokens already emitted");
  verb.add_option("--frequency-penalty", s.frequency_penalty,
                  "Subtracted for each time a token was emitted");
  verb.add_option("--seed", flags.seed, "Any 64-bit integer; default: a new one each time");
  verb.add_flag("--ignore-eos", s.ignore_eos, "Never end before the token limit");
}

SamplingOptions resolve(const SamplingFlags& flags, const SamplingOptions& defaults) {
  SamplingOptions s = defaults;
  const auto take = [&](const char* flag, auto SamplingOptions::*field) {
    if (flags.verb->count(flag) > 0) s.*field = flags.over.*field;
  };
  take("--temp", &SamplingOptions::temperature);
  take("--top-p", &SamplingOptions::top_p);
  take("--min-p", &SamplingOptions::min_p);
  take("--top-k", &SamplingOptions::top_k);
  take("--xtc-probability", &SamplingOptions::xtc_probability);
  take("--xtc-threshold", &SamplingOptions::xtc_threshold);
  take("--repetition-penalty", &SamplingOptions::repetition_penalty);
  take("--presence-penalty", &SamplingOptions::presence_penalty);
  take("--frequency-penalty", &SamplingOptions::frequency_penalty);
  take("--ignore-eos", &SamplingOptions::ignore_eos);
  if (flags.verb->count("--seed") > 0) s.seed = flags.seed;
  return s;
}

int report(const Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what.c_str());
  return error.code == Errc::capacity ? kExitDoesNotFit : kExitFailure;
}

}  // namespace kvasir::app
