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
#include "tensor/recurrent_view.h"

namespace kvasir::model {

struct StepLimits {
  std::uint32_t max_step_tokens = 0;
  std::uint32_t max_wanted = 0;
  std::uint32_t max_tentative = 0;  // tokens of a step that a replay may feed again
};

// Of layers of latent attention; every width is the widest of them.
struct LatentScratch {
  MatView q_down;                     // [max_step_tokens, q_rank]
  MatView q;                          // [max_step_tokens, n_heads · kv_rank]: absorbed queries
  MatView row;                        // [max_step_tokens, kv_rank + rope_dim]
  MatView index_q;                    // [max_step_tokens, index heads · dim]
  MatView index_key;                  // [max_step_tokens, index dim]
  MatView index_weights;              // [max_step_tokens, index heads]
  std::span<std::uint32_t> selected;  // [max_step_tokens · top_k]: kept for layers that share it
};

struct Scratch {
  Buffer memory;
  MatView residual;  // [max_step_tokens, hidden]
  MatView normed;    // [max_step_tokens, hidden]
  MatView branch;    // [max_step_tokens, hidden]: what a block adds to the residual stream
  MatView qkv;       // [max_step_tokens, widest qkv or inputs of a recurrent layer]
  MatView conv;      // [max_step_tokens, widest convolution]: its outputs
  MatView attended;  // [max_step_tokens, widest q or values]
  LatentScratch latent;
  MatView gate_up;  // [max_step_tokens, widest gate and up]
  MatView shared;   // [max_step_tokens, hidden]: what adds to a branch: a shared expert, or experts
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
  std::span<std::uint32_t> picked;   // [max_wanted]: tokens of the last step that picked any

  // What a replay needs of the last step (KV-39): its tentative tokens, ascending, and for each
  // layer what the recurrence got of them: [max_tentative, channels of the convolution, and of
  // delta layers beta and decay]; of no rows in other layers.
  std::vector<std::uint32_t> tentative;
  std::vector<MatView> records;
  std::vector<RecurrentRowView> replayed;  // rows of the replay in progress

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
