// The activations of a forward: one allocation at load, cut into matrices that every layer reuses.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/decoder_config.h"
#include "ops/device.h"
#include "tensor/buffer.h"
#include "tensor/kv_view.h"
#include "tensor/mat_view.h"

namespace kvasir::model {

struct StepLimits {
  std::uint32_t max_step_tokens = 0;
  std::uint32_t max_wanted = 0;
};

struct Scratch {
  Buffer memory;
  MatView residual;  // [max_step_tokens, hidden]
  MatView normed;    // [max_step_tokens, hidden]
  MatView branch;    // [max_step_tokens, hidden]: what a block adds to the residual stream
  MatView qkv;       // [max_step_tokens, widest qkv]
  MatView attended;  // [max_step_tokens, widest q]
  MatView gate_up;   // [max_step_tokens, widest gate and up]
  MatView shared;  // [max_step_tokens, hidden]: what adds to a branch: a shared expert, or experts
                   // beside an mlp
  MatView router_logits;             // [max_step_tokens, most experts]
  MatView per_layer_inputs;          // [max_step_tokens, n_layers · per_layer_input]
  MatView per_layer_projected;       // same
  MatView per_layer_gate;            // [max_step_tokens, per_layer_input]
  std::span<float> expert_weights;   // [max_step_tokens · largest top_k]
  std::span<std::uint32_t> experts;  // same
  std::span<float> moe;              // ops::moe_scratch_floats
  MatView wanted;                    // [max_wanted, hidden]
  MatView logits;                    // [max_wanted, vocab]; no columns without a head

  // An encoder's keys and values, of one layer at a time, in blocks of one token (MOD-61).
  std::span<float> keys, values;  // [max_step_tokens, widest kv], room for any type
  DType kv_type = DType::bf16;
  std::vector<BlockId> blocks;  // [max_step_tokens]: 0, 1, 2 …
  std::vector<KvRowView> rows;  // of the step in progress
};

std::uint64_t scratch_size_bytes(const DecoderConfig& config, const StepLimits& limits);
Result<Scratch> make_scratch(ops::Device& device,
                             const DecoderConfig& config,
                             const StepLimits& limits);

}  // namespace kvasir::model
