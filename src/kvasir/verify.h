// `kvasir verify` (SRV-96): each check returns a summary; `line` gets one report line at a time.
// All is equal iff n_failed is 0.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kvasir/options.h"

namespace kvasir::verify {

using Line = std::function<void(const std::string&)>;

struct Summary {
  std::uint64_t n_checked = 0;
  std::uint64_t n_failed = 0;
  std::string text;  // the last line
};

struct GoldenOptions {
  std::filesystem::path folder;    // with one sub-folder a checkpoint
  std::vector<std::string> only;   // names; empty: all
  Backend backend = Backend::ref;  // cpu is compared with ref:mirror
  std::vector<int> gpus = {0};
  int n_threads = 0;
  std::string isa = "auto";
  std::string activations = "exact";
};

// ref: relative error ≤ 1e-4 and greedy tokens equal. cpu: every product equal to ref:mirror's,
// logits within 1e-3 of it. cuda: in f32 as ref; in bf16 every product within its bound of
// ref:mirror's. Each planted fault must be noticed.
Result<Summary> goldens(const GoldenOptions& options, const Line& line);

struct SameBitsOptions {
  OpenOptions open;
  std::uint32_t n_generate = 24;
  bool plant_row_count_fault =
      false;  // tests: an op that depends on the row count must be reported
};

// The same prompts alone, in batches, in chunks, over block sizes, threads and the instruction sets
// that this machine has, cache cold and warm: bit for bit.
Result<Summary> same_bits(const SameBitsOptions& options, const Line& line);

struct KvQualityOptions {
  OpenOptions open;
  std::vector<std::filesystem::path> texts;
  std::vector<std::string> schemes;  // "bf16", "f16", or a --kv-quant
  std::uint32_t n_tokens = 4096;     // of the texts together, at most
};

// A table: per scheme the bits of an element, KL divergence and agreement of the most likely token
// with f32 KV over a teacher-forced text. Fails nothing: numbers to look at (docs/kv.md).
Result<Summary> kv_quality(const KvQualityOptions& options, const Line& line);

struct ActivationQualityOptions {
  OpenOptions open;
  std::vector<std::filesystem::path> texts;
  std::uint32_t n_tokens = 1024;    // of the texts together, at most
  std::vector<std::string> logits;  // NAME=FILE of f32 [n_tokens, vocab]: another engine's
};

// A table: KL divergence and agreement of the most likely token with f32 arithmetic and KV, of
// --activations exact and int8 and of other engines. Fails nothing (docs/numerics.md).
Result<Summary> activation_quality(const ActivationQualityOptions& options, const Line& line);

struct KvMemoryOptions {
  OpenOptions open;
  std::vector<std::string> schemes;  // each a --kv-quant
  std::uint32_t n_tokens = 8192;     // over which the process's growth is taken
};

// A table: bytes of a token as predicted, as the planes add up, and by the growth of the process.
// Fails a scheme whose planes are not as predicted, or whose growth is not within 2 %. The process
// must do nothing else meanwhile (docs/kv.md).
Result<Summary> kv_memory(const KvMemoryOptions& options, const Line& line);

}  // namespace kvasir::verify
