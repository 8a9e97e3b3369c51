// How a model is opened: backend, threads, memory and step shape. Shared by the library, the
// command line, verify and bench. Values only.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "base/result.h"
#include "fit/speed.h"
#include "json/json.h"
#include "ops/device.h"
#include "tensor/dtype.h"

namespace kvasir {

enum class Backend : std::uint8_t { automatic, cpu, cuda, ref, ref_mirror };

// "auto", "cpu", "cuda", "ref", "ref:mirror".
Result<Backend> parse_backend(std::string_view name);

struct OpenOptions {
  std::filesystem::path model;  // hub folder or .gguf file
  Backend backend = Backend::automatic;
  std::string isa = "auto";           // cpu: a name of backend/cpu/isa.h
  std::string activations = "exact";  // cpu, ref:mirror: --activations, exact or int8
  std::vector<int> gpus = {0};        // cuda: those that work together as one (--device)
  int n_threads = 0;                  // 0: every core we may use (FIT-35)
  std::uint32_t context_length = 0;   // 0: the model's own limit, lowered to fit the memory budget
  std::uint32_t block_tokens = 64;    // --kv-block-size
  std::optional<DType> kv_type;       // --kv-dtype; default: bf16 (f32 on ref)
  std::string kv_quant = "off";       // --kv-quant: off | config | 4 | 8 | turbo[:kKvV] (KV-3)
  std::string kv_start;               // --quantized-kv-start: a position, or "eager"
  std::uint16_t kv_group = 64;        // --kv-group-size
  std::uint32_t kv_first_span = 512;  // F of KV-20; smaller in tests
  std::uint64_t memory_budget_bytes =
      0;                              // --memory-budget; 0: what the machine has to give (FIT-1)
  std::uint64_t kv_budget_bytes = 0;  // --kv-budget; 0: what the rest leaves of it (FIT-9)
  bool pins_weights = false;          // --mlock (FIT-34)
  std::uint32_t max_rows = 8;         // --batch
  std::uint32_t max_step_tokens = 0;  // --max-step-tokens; 0: the backend's (SCH-10)
  std::uint32_t prefill_share = 0;    // --prefill-share; 0: the backend's (SCH-11)
  std::uint64_t prompt_cache_bytes = 8ull << 30;  // 0: no prefix cache
  std::size_t prompt_cache_entries = 0;           // --prompt-cache-size; 0: as many as fit
  std::string cache_policy = "lru";               // --cache-policy (CACHE-23)
  std::uint32_t snapshot_every = 2048;            // --snapshot-every (CACHE-15)
  std::size_t queue_limit = 64;                   // --queue
  std::chrono::milliseconds queue_timeout{0};     // --queue-timeout; 0: none
  std::string chat_template;                      // its text; empty: the model's own
  bool use_default_chat_template = false;         // ChatML where the model has no template (TXT-20)
  std::string tool_parser;                        // --tool-parser; empty: found (TXT-40)
  json::Value sampling_flags = json::Object{};    // defaults, named as in a request (SAMP-40)
  fit::MachineSpeed machine;  // measured, for predictions; zeros: none are made (FIT-16)
  ProgressSink progress;

  // Tokens of a step, and of prompts beside rows that decode, as given or by the backend: a GPU's
  // products want many.
  std::uint32_t step_tokens() const;
  std::uint32_t prompt_tokens_beside() const;
};

// What `automatic` stands for on this machine: cuda where a GPU is, else cpu.
Backend chosen_backend(Backend backend);

// What else a backend's device may be told.
struct DeviceOptions {
  bool use_graphs = true;             // cuda: the same bits without (EXE-48)
  std::string activations = "exact";  // cpu, ref:mirror; others have only exact
  std::vector<int> gpus = {0};        // cuda: the same bits with any number
};
Result<std::unique_ptr<ops::Device>> make_device(Backend backend,
                                                 int n_threads,
                                                 const std::string& isa,
                                                 const DeviceOptions& options = {});
Result<std::unique_ptr<ops::Device>> make_device(const OpenOptions& options);

}  // namespace kvasir
