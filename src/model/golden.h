// check_golden: runs a folder with model and golden.safetensors (prompt_k, logits_k and greedy_k,
// or hidden_k of an embedding model, for any k) on a device and says how far its output rows are
// from the reference and how many greedy tokens agree. Positions that golden_f64.safetensors beside
// it lists (positions_k, logits_k) are compared with the reference in f64 (docs/numerics.md). A
// model with a sparse index is run as its reference was: equal scores in that one's order, each
// token from the whole sequence anew. For `kvasir verify` and tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "ops/device.h"
#include "tensor/dtype.h"

namespace kvasir::model {

constexpr double kGoldenBar = 1e-4;  // relative, of the oracle (DESIGN §5)

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
  std::uint32_t n_f64 = 0;                   // positions compared with f64
  double stored_error = 0.0;                 // of the stored rows of those, by the same measure
  std::uint32_t n_greedy = 0;                // reference tokens
  std::uint32_t n_greedy_equal = 0;          // of them equal before the first difference
};

// One result a prompt, in ascending k. Errors: model or goldens cannot be read, no prompt in the
// file, an f64 row for a stored one that is within half the bar of it.
Result<std::vector<GoldenResult>> check_golden(const std::filesystem::path& folder,
                                               ops::Device& device,
                                               GoldenOptions options);

}  // namespace kvasir::model
