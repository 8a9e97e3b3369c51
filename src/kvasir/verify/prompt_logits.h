// All logits of a checkpoint's golden prompts on any device: the raw material of backend
// comparisons.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/result.h"
#include "ops/device.h"
#include "tensor/dtype.h"

namespace kvasir::verify {

struct PromptLogits {
  std::uint32_t n_tokens = 0;
  std::vector<float> logits;  // [n_tokens, vocab]
};

// folder: config.json, weights and golden.safetensors (its prompt_k are fed whole, ascending k).
Result<std::vector<PromptLogits>> prompt_logits(const std::filesystem::path& folder,
                                                ops::Device& device,
                                                DType kv_type);

// max |a − b| ÷ max |b| of one prompt; infinity when a value is not finite.
double relative_error(const PromptLogits& a, const PromptLogits& b);

}  // namespace kvasir::verify
