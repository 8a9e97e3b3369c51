// The library: one open model that answers requests (SRV-95). Composes files, tokenizer, template,
// model, backend and the continuous engine. generate() may be called from any thread, also
// concurrently; the engine has its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "contract/sampling.h"
#include "json/json.h"
#include "kvasir/options.h"

namespace kvasir {

struct GenerateRequest {
  std::string prompt;                       // used as it is when `messages` is empty
  json::Array messages;                     // chat: rendered by the model's template
  json::Object template_variables;          // tools, enable_thinking, …
  std::uint32_t n = 1;                      // choices; they share the prompt's KV
  std::optional<std::uint32_t> max_tokens;  // unset: 512, 4096 for chat, lowered to fit
  SamplingOptions sampling;
  std::vector<std::string> stops;  // TXT-60
  bool parse_special = false;      // prompt only: match special tokens in the text
};

struct TextDelta {
  std::uint32_t choice = 0;
  std::string_view text;               // complete UTF-8; may be empty while text is held back
  std::span<const TokenId> tokens;     // the tokens that produced it
  std::span<const Logprobs> logprobs;  // one a token when asked for
};

struct Choice {
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<Logprobs> logprobs;
  std::string finish_reason;  // "stop", "length", "cancelled", "failed"
  std::string error;          // why, when failed
  std::uint64_t seed = 0;
};

struct Generated {
  std::vector<Choice> choices;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t cached_tokens = 0;     // of the prompt, found in the prefix cache (CACHE-14)
  std::uint64_t generated_tokens = 0;  // over all choices
  double prefill_ms = 0;
  double decode_ms = 0;
};

struct TokenPiece {
  TokenId id = 0;
  std::string text;
};

struct ModelSummary {
  std::string name;  // file or folder name
  std::string architecture;
  std::string backend;  // with its instruction set
  std::uint64_t weight_bytes = 0;
  std::uint32_t context_length = 0;
  std::uint32_t vocab = 0;
  bool has_chat_template = false;
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> open(const OpenOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Returning false from on_text stops that choice. `cancel` (may be null) is looked at at every
  // step.
  using OnText = std::function<bool(const TextDelta&)>;
  Result<Generated> generate(const GenerateRequest& request,
                             const OnText& on_text,
                             const std::atomic<bool>* cancel = nullptr);

  Result<std::vector<TokenPiece>> tokenize(std::string_view text,
                                           bool add_special,
                                           bool parse_special) const;
  Result<std::string> render(const json::Array& messages, const json::Object& variables) const;
  // Prompt tokens of a chat request; what chat uses to stay inside the context (SRV-72).
  Result<std::uint64_t> count_tokens(const GenerateRequest& request) const;

  const ModelSummary& summary() const noexcept;
  // The model's generation_config.json over the built-in defaults (SAMP-40).
  const SamplingOptions& default_sampling() const noexcept;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvasir
