// check_golden: runs a folder with model and golden.safetensors (prompt_k, logits_k and greedy_k,
// or hidden_k of an embedding model, for any k) on a device and says how far its output rows are
// from the reference and how many greedy tokens agree. A model with a sparse index is run as its
// reference was: equal scores in that one's order, each token from the whole sequence anew
// (docs/numerics.md). For `kvasir verify` and tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "ops/device.h"
#include "tensor/dtype.h"

namespace kvasir::model {

struct GoldenOptions {
  DType kv_type = DType::f32;       // f32 or bf16
  std::uint32_t block_tokens = 64;  // power of two
  std::uint32_t chunk_tokens = 0;   // prompt tokens of a step; 0: the whole prompt, as encoders and
                                    // models with a sparse index always
  bool exact_f32 = false;           // as LoadOptions
  bool with_greedy = true;
};

struct GoldenResult {
  std::string prompt;  // the k of prompt_k
  std::uint32_t n_tokens = 0;
  double relative_error =
      0.0;  // max |output − reference| ÷ max |reference| over the prompt; NaN outputs give infinity
  std::vector<double> position_errors = {};  // [n_tokens], the same of each position alone
  std::uint32_t n_greedy = 0;                // reference tokens
  std::uint32_t n_greedy_equal = 0;          // of them equal before the first difference
};

// One result a prompt, in ascending k. Errors: model or goldens cannot be read, no prompt in the
// file.
Result<std::vector<GoldenResult>> check_golden(const std::filesystem::path& folder,
                                               ops::Device& device,
                                               GoldenOptions options);

}  // namespace kvasir::model
