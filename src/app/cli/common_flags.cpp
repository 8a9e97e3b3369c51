#include "app/cli/common_flags.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "app/cli/hub_support.h"
#include "app/cli/verbs.h"
#include "backend/cpu/isa.h"
#include "base/byte_size.h"
#include "base/file.h"
#include "hub/library.h"

namespace kvasir::app {

namespace {

// Also by llama-server's names: CUDA0.
std::string number_of_gpu(std::string text) {
  constexpr std::string_view kPrefix = "CUDA";
  return text.starts_with(kPrefix) ? text.substr(kPrefix.size()) : text;
}

}  // namespace

void add_open_flags(CLI::App& verb, OpenFlags& flags) {
  OpenOptions& o = flags.options;
  verb.add_option(
          "model,-m,--model", o.model,
          "Model: a folder with config.json and safetensors, a .gguf file, or (part of) the "
          "name of one that kvasir ls shows")
      ->required();
  verb.add_option("--backend", flags.backend, "auto, cpu, cuda, ref or ref:mirror")
      ->capture_default_str();
  verb.add_option("--device", o.gpus, "GPUs of the cuda backend: 0, or 0,1 to work as one")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->transform(number_of_gpu)
      ->capture_default_str();
  verb.add_option("--isa", o.isa, "Kernels of the cpu backend: " + backend::cpu::isa_names())
      ->capture_default_str();
  verb.add_option("--activations", o.activations,
                  "What products of quantized weights take on the cpu backend: exact, or int8: "
                  "8-bit rows, coarser, faster on CPUs without tiles (docs/numerics.md)")
      ->check(CLI::IsMember({"exact", "int8"}))
      ->capture_default_str();
  verb.add_option("-t,--threads", o.n_threads,
                  "Threads; 0: one for each core that this process may use, kept there")
      ->capture_default_str();
  verb.add_option("-c,--context-length,--ctx-size,--ctx", o.context_length,
                  "Tokens of context; 0: the model's");
  verb.add_option("--kv-dtype", flags.kv_type,
                  "KV state before quantization: bf16, f16 or f32 (default bf16; f32 on ref)");
  verb.add_option(
          "--kv-quant,--kv-bits", o.kv_quant,
          "Quantized KV state: off, 8, 4, turbo, turbo:kKvV, config (kv_config.json), or codecs "
          "of keys and values by name: affine:8:64,turbo:4")
      ->capture_default_str();
  verb.add_option("--quantized-kv-start", o.kv_start,
                  "Position from which KV is read quantized (at least 512), or eager: from the "
                  "first token");
  verb.add_option("--kv-group-size", o.kv_group, "Group of --kv-quant 4 and 8: 32, 64 or 128")
      ->capture_default_str();
  verb.add_option("--cache-type-k", flags.cache_type_k, "As --kv-dtype, with --cache-type-v")
      ->group("");
  verb.add_option("--cache-type-v", flags.cache_type_v, "As --cache-type-k")->group("");
  verb.add_option("--chat-template", flags.chat_template,
                  "Chat template instead of the model's: its text, or a file");
  verb.add_flag("--use-default-chat-template", o.use_default_chat_template,
                "ChatML for a model that has no chat template");
  verb.add_option("--tool-parser", o.tool_parser,
                  "Format of tool calls; default: found from the chat template");
  verb.add_option("--kv-block-size", o.block_tokens,
                  "Tokens of a KV block: a power of two, 8 to 512")
      ->capture_default_str();
  verb.add_option("--memory-budget", flags.memory_budget,
                  "Memory for everything, in GB or with a unit (kB … TiB); default: 75 % of what "
                  "this machine has to give");
  verb.add_option("--kv-budget", flags.kv_budget,
                  "Memory for KV state, in GB or with a unit; default: what the rest leaves of "
                  "--memory-budget");
  verb.add_flag("--mlock", o.pins_weights,
                "Keep the weights in RAM; by default only when they are more than half of it and "
                "the system's limit allows it");
  verb.add_option("--prompt-cache", flags.prompt_cache,
                  "Prefix cache, inside the KV memory, in GiB or with a unit; 0: off")
      ->capture_default_str();
  verb.add_option("--prompt-cache-size", o.prompt_cache_entries,
                  "Most entries of the prefix cache; 0: as many as fit")
      ->capture_default_str();
  verb.add_option("--cache-policy", o.cache_policy,
                  "What the prefix cache forgets first: lru or cost-size")
      ->capture_default_str();
  verb.add_option("--snapshot-every", o.snapshot_every,
                  "Prompt tokens between states kept of windowed and recurrent layers; 0: none")
      ->capture_default_str();
  verb.add_option("--batch", o.max_rows, "Requests that run at once")->capture_default_str();
  verb.add_option("--max-step-tokens", o.max_step_tokens,
                  "Tokens one step may feed; 0: 2048 on a GPU, else 512")
      ->capture_default_str();
  verb.add_option("--prefill-share", o.prefill_share,
                  "Prompt tokens a step beside decoding rows; 0: 512 on a GPU, else 128")
      ->capture_default_str();
}

namespace {

constexpr std::uint64_t kMaxTemplateBytes = 1 << 20;

// A path as it is, else what kvasir ls knows by that name (SRV-81).
Result<std::filesystem::path> find_model(const std::filesystem::path& query) {
  std::error_code ignored;
  if (std::filesystem::exists(query, ignored)) return query;
  KVASIR_TRY(const hub::HubOptions places, hub_options());
  KVASIR_TRY(const auto library, hub::Library::open(places));
  KVASIR_TRY_DO(library->refresh());
  KVASIR_TRY(const hub::ModelEntry entry, library->find(query.string()));
  return entry.path;
}

// llama-server's names: exact types, and q8_0 and q4_0 for --kv-quant 8 and 4 (SRV-92).
Status read_cache_type(const OpenFlags& flags, std::string& type, std::string& quant) {
  if (flags.cache_type_k != flags.cache_type_v)
    return invalid("--cache-type-k and --cache-type-v must be equal");
  const std::string& name = flags.cache_type_k;
  if (name != "q8_0" && name != "q4_0") {
    if (type.empty()) type = name;
    return {};
  }
  const std::string meant = name.substr(1, 1);
  if (quant != "off" && quant != meant)
    return invalid("--cache-type-k " + name + " means --kv-quant " + meant + ", but --kv-quant " +
                   quant + " was given");
  quant = meant;
  return {};
}

Result<std::optional<DType>> kv_type_of(const std::string& name) {
  if (name.empty()) return std::optional<DType>();
  for (const DType type : {DType::bf16, DType::f16, DType::f32})
    if (name == name_of(type)) return std::optional<DType>(type);
  return invalid("--kv-dtype must be bf16, f16 or f32");
}

Result<std::uint64_t> size_of_flag(std::string_view flag,
                                   const std::string& text,
                                   std::uint64_t unit) {
  if (text.empty()) return std::uint64_t{0};
  return parse_size(flag, text, unit);
}

// A template's text is more than a name could be.
Result<std::string> read_template(const std::string& flag) {
  std::error_code ignored;
  const bool is_text = flag.empty() || flag.find_first_of("{\n") != std::string::npos;
  if (is_text || !std::filesystem::exists(flag, ignored)) {
    if (is_text) return flag;
    return invalid("--chat-template: no such file: " + flag);
  }
  return read_file(flag, kMaxTemplateBytes);
}

}  // namespace

Result<OpenOptions> resolve(const OpenFlags& flags) {
  OpenOptions options = flags.options;
  KVASIR_TRY(options.model, find_model(flags.options.model));
  KVASIR_TRY(options.backend, parse_backend(flags.backend));
  std::string kv_type = flags.kv_type;
  KVASIR_TRY_DO(read_cache_type(flags, kv_type, options.kv_quant));
  KVASIR_TRY(options.kv_type, kv_type_of(kv_type));
  KVASIR_TRY(options.chat_template, read_template(flags.chat_template));
  KVASIR_TRY(options.memory_budget_bytes,
             size_of_flag("memory-budget", flags.memory_budget, kGigabyte));
  KVASIR_TRY(options.kv_budget_bytes, size_of_flag("kv-budget", flags.kv_budget, kGigabyte));
  KVASIR_TRY(options.prompt_cache_bytes,
             size_of_flag("prompt-cache", flags.prompt_cache, kGibibyte));
  if (options.n_threads < 0 || options.n_threads > 1024)
    return invalid("--threads must be 0 to 1024");
  return options;
}

namespace {

constexpr std::array kHlgFlags{"--hlg",     "--hlg-width",        "--hlg-shoulder",
                               "--hlg-toe", "--hlg-pivot-offset", "--hlg-pivot",
                               "--hlg-gain"};

// SAMP-13's curve; a request's fields go over these one by one.
void add_hlg_flags(CLI::App& verb, SamplingFlags& flags) {
  HlgCurve& h = flags.hlg;
  verb.add_flag("--hlg", flags.has_hlg,
                "A log-shoulder and log-toe curve instead of temperature and filters");
  verb.add_option("--hlg-width", h.width, "Half of its straight middle, in nats")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb.add_option("--hlg-shoulder", h.shoulder, "Scale of the shoulder; 0: none")
      ->capture_default_str();
  verb.add_option("--hlg-toe", h.toe, "Scale of the toe; 0: none")->capture_default_str();
  verb.add_option("--hlg-pivot-offset", h.pivot_offset, "Its centre's distance below the pivot")
      ->capture_default_str();
  verb.add_option("--hlg-pivot", flags.hlg_pivot, "top, entropy or median")
      ->check(CLI::IsMember({"top", "entropy", "median"}))
      ->capture_default_str();
  verb.add_option("--hlg-gain", h.gain, "Slope of its middle; 0: 1 / temperature")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
}

HlgPivot pivot_of(const std::string& name) {
  return name == "entropy"  ? HlgPivot::entropy
         : name == "median" ? HlgPivot::median
                            : HlgPivot::top;
}

// The flags that were given as the request's field.
json::Object hlg_fields(const SamplingFlags& flags) {
  json::Object out;
  const HlgCurve& h = flags.hlg;
  const std::array<json::Value, kHlgFlags.size()> values{flags.has_hlg,
                                                         static_cast<double>(h.width),
                                                         static_cast<double>(h.shoulder),
                                                         static_cast<double>(h.toe),
                                                         static_cast<double>(h.pivot_offset),
                                                         flags.hlg_pivot,
                                                         static_cast<double>(h.gain)};
  constexpr std::array<const char*, kHlgFlags.size()> kFields{
      "enabled", "width", "shoulder", "toe", "pivot_offset", "pivot", "gain"};
  for (std::size_t i = 0; i < kHlgFlags.size(); ++i) {
    if (flags.verb->count(kHlgFlags[i]) > 0) out[kFields[i]] = values[i];
  }
  return out;
}

}  // namespace

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
  add_hlg_flags(verb, flags);
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
  if (flags.has_hlg) {
    s.hlg = flags.hlg;
    s.hlg->pivot = pivot_of(flags.hlg_pivot);
    s.curve.clear();
  }
  return s;
}

json::Object as_request_fields(const SamplingFlags& flags) {
  json::Object out;
  const SamplingOptions& s = flags.over;
  const auto give = [&](const char* flag, const char* field, json::Value value) {
    if (flags.verb->count(flag) > 0) out[field] = std::move(value);
  };
  give("--temp", "temperature", static_cast<double>(s.temperature));
  give("--top-p", "top_p", static_cast<double>(s.top_p));
  give("--min-p", "min_p", static_cast<double>(s.min_p));
  give("--top-k", "top_k", s.top_k);
  give("--xtc-probability", "xtc_probability", static_cast<double>(s.xtc_probability));
  give("--xtc-threshold", "xtc_threshold", static_cast<double>(s.xtc_threshold));
  give("--repetition-penalty", "repetition_penalty", static_cast<double>(s.repetition_penalty));
  give("--presence-penalty", "presence_penalty", static_cast<double>(s.presence_penalty));
  give("--frequency-penalty", "frequency_penalty", static_cast<double>(s.frequency_penalty));
  give("--ignore-eos", "ignore_eos", s.ignore_eos);
  give("--seed", "seed", flags.seed);
  if (json::Object hlg = hlg_fields(flags); !hlg.empty()) out["hlg"] = std::move(hlg);
  return out;
}

int report_usage(const Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what.c_str());
  return kExitUsage;
}

int report(const Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what.c_str());
  return error.code == Errc::capacity ? kExitDoesNotFit : kExitFailure;
}

}  // namespace kvasir::app
