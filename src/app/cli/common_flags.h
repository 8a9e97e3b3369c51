// Flags that several verbs share, and what they fill.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "contract/sampling.h"
#include "json/json.h"
#include "kvasir/options.h"

namespace kvasir::app {

struct OpenFlags {
  OpenOptions options;
  std::string backend = "auto";
  std::string kv_type;
  std::string cache_type_k, cache_type_v;  // llama-server's names for it
  std::string chat_template;               // text or a file
  std::string memory_budget, kv_budget;    // FIT-30; empty: not given
  std::string prompt_cache = "8";
};

void add_open_flags(CLI::App& verb, OpenFlags& flags);
Result<OpenOptions> resolve(const OpenFlags& flags);

// Sampling flags write into `over` only when given: flags > the model's generation_config >
// defaults (SAMP-40).
struct SamplingFlags {
  CLI::App* verb = nullptr;
  SamplingOptions over;
  std::uint64_t seed = 0;
  bool has_hlg = false;
  HlgCurve hlg;
  std::string hlg_pivot = "top";
};

void add_sampling_flags(CLI::App& verb, SamplingFlags& flags);
SamplingOptions resolve(const SamplingFlags& flags, const SamplingOptions& defaults);
// Those that were given, named as in a request's body.
json::Object as_request_fields(const SamplingFlags& flags);

// Prints "error: …" to stderr; the process's exit code for it.
int report(const Error& error);
int report_usage(const Error& error);  // flags that do not go together

}  // namespace kvasir::app
