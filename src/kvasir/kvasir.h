// The library: one open model that answers requests (SRV-95). Composes files, tokenizer, template,
// model, backend and the continuous engine, which has its own thread. All functions may be called
// from any thread, also concurrently; none but generate(), embed() and shutdown() waits for the
// engine.
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

#include "base/clock.h"
#include "base/result.h"
#include "engine/engine.h"
#include "fit/report.h"
#include "kvasir/embedding.h"
#include "kvasir/generation.h"
#include "kvasir/options.h"

namespace kvasir {

struct TokenPiece {
  TokenId id = 0;
  std::string text;  // bytes; maybe no UTF-8
};

struct ModelSummary {
  std::string name;  // file or folder name
  std::string path;
  std::string architecture;
  std::string backend;   // for people, with its instruction set: "cpu-avx512"
  std::string numerics;  // identity of its bits: "cpu-2" (CACHE-32)
  std::string kv_type;   // the KV scheme's key: "bf16", "turbo-k8v3" (KV-2)
  std::string kv_quant;  // as asked for: "off", "8", "turbo" …
  std::vector<std::string>
      kv_layers;  // of a KV-list entry: "bf16", "affine:8:64", "turbo:8,turbo:3"
  std::uint64_t weight_bytes = 0;
  std::uint64_t usable_bytes = 0;  // of memory, for everything (FIT-1)
  std::uint32_t context_length = 0;
  std::uint32_t model_context_length = 0;  // the model's own limit
  std::uint32_t vocab = 0;
  std::string chat_template;  // source; empty: none
  std::string bos_token, eos_token;
  text::OutputFormat output;
  std::uint32_t embedding_width = 0;  // of an embedding model, which generates nothing; else 0
  bool has_random_weights = false;    // of `kvasir synth`: whoever shows text says so
  bool has_chat_template() const noexcept { return !chat_template.empty(); }
};

enum class Surface : std::uint8_t { chat, completions };  // they differ in `logprobs` (SAMP-41)

// The sampling fields of a request body over the server's and the model's own.
struct RequestSampling {
  SamplingOptions options;
  std::optional<std::uint32_t> max_tokens;          // when the request names it
  std::optional<std::uint32_t> default_max_tokens;  // the server's or the model's, when unset
  bool until_context_full = false;                  // n_predict -1
  bool stream = false;
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> open(const OpenOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Renders, tokenizes and queues. Errors before anything waits: those of templates and tokenizers,
  // of stop strings, FIT-20/21 (Error::id), `engine_closed`; `queue_full` arrives as an end.
  Result<Generation> start(const GenerateRequest& request,
                           std::shared_ptr<GenerationListener> listener);
  void cancel(const Generation& generation, CancelReason reason);
  void cancel(RequestId choice, CancelReason reason);
  void wake();  // a paused listener has drained

  // start() and wait. Returning false from on_text stops that choice. `cancel` (may be null) is
  // looked at every 50 ms.
  using OnText = std::function<bool(const TextDelta&)>;
  using OnProgress = std::function<void(std::uint64_t fed, std::uint64_t total)>;
  Result<Generated> generate(const GenerateRequest& request,
                             const OnText& on_text,
                             const std::atomic<bool>* cancel = nullptr,
                             const OnProgress& on_progress = {});

  // Tokenizes and queues. on_done is called once unless this is an error: of the tokenizer, of the
  // request's values, FIT-20's context_length_exceeded (Error::id), `engine_closed`; unsupported
  // with SRV-14's text where the model generates text.
  Result<Embedding> start_embedding(const EmbedRequest& request, OnEmbedded on_done);
  void cancel(const Embedding& embedding, CancelReason reason);
  // start_embedding() and wait; an end without vectors is an error. `cancel` as in generate().
  Result<Embedded> embed(const EmbedRequest& request, const std::atomic<bool>* cancel = nullptr);

  // Request fields: invalid_argument with the texts of SAMP-41 and SAMP-4.
  Result<RequestSampling> sampling_of(const json::Value& body, Surface surface) const;
  // Server flags and generation_config.json over the built-in defaults (SAMP-40).
  const SamplingOptions& default_sampling() const noexcept;

  Result<std::vector<TokenPiece>> tokenize(std::string_view text,
                                           bool add_special,
                                           bool parse_special) const;
  std::string detokenize(std::span<const TokenId> ids) const;  // special tokens included
  std::string token_bytes(TokenId id) const;                   // empty for an unknown id
  std::string token_piece(TokenId id) const;                   // as the vocabulary spells it
  // The text a conversation becomes.
  Result<std::string> render(const GenerateRequest& request) const;
  // The tokens of a request's prompt.
  Result<std::uint64_t> count_tokens(const GenerateRequest& request) const;

  // What the memory model says (FIT-10): the formula that this engine was opened by. Predictions
  // are 0 without OpenOptions::machine.
  fit::FitReport fit() const;
  std::string startup_line() const;                   // FIT-23
  const fit::MachineSpeed& machine() const noexcept;  // as given at open

  const ModelSummary& summary() const noexcept;
  engine::EngineSnapshot snapshot() const;  // of the last step boundary

  // Admission stops while anyone holds (SCH-30).
  void hold();
  void release_hold();
  void flush_cache();
  // New requests are refused with `engine_closed`, waiting ones end, running ones go on (SCH-32).
  void close();
  // close(), waits up to `patience` for running rows, then cancels the rest. Once.
  void shutdown(Clock::Duration patience);

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvasir
