// What the memory model knows of a model, a KV scheme and a step (spec FIT-2…8, FIT-14): plain
// numbers, filled by whoever opened the model or only read its headers. All functions of this room
// are pure functions of them. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "contract/kv_list.h"
#include "fit/scores.h"
#include "kv/kv_scheme.h"

namespace kvasir::fit {

// A layer's share of one row's state (FIT-4).
struct StateLayer {
  std::uint64_t exact_bytes = 0;     // of one token, keys and values of all heads
  std::uint64_t encoded_bytes = 0;   // of one token once it is encoded; 0: never
  std::uint32_t window = 0;          // 0: every token is kept
  std::uint64_t constant_bytes = 0;  // whatever the length: recurrent state
};

// One a layer that attends; several may read the same state (KV-41).
struct ReadLayer {
  std::uint32_t state = 0;          // index into Facts::state
  std::uint64_t flops_per_key = 0;  // of one query: q·k and p·v
};

inline constexpr std::uint64_t kUnknownStepTokenBytes = 550'000;  // FIT-6

struct Facts {
  // Memory.
  std::uint64_t weight_bytes = 0;  // in the backend's layout, with a draft's and adapters' (FIT-3)
  std::uint64_t fixed_bytes = 0;   // FIT-8
  std::uint64_t step_token_bytes = kUnknownStepTokenBytes;  // t of FIT-6
  std::uint32_t chunk = 512;                                // step budget B
  std::uint32_t block_tokens = 64;
  std::uint64_t max_positions = 0;
  std::vector<StateLayer> state;
  std::uint64_t transition = kv::kNeverEncoded;  // T of KV-20
  // The smallest KV budget whose store holds a row of n tokens (kv::KvPlan): the store's own
  // arithmetic. Its pools of exact and encoded blocks do not lend each other memory, so under a
  // scheme that converts it is more than the row ever holds. Empty: kv_peak.
  std::function<std::uint64_t(std::uint64_t n)> budget_for = {};
  std::uint64_t kv_budget_bytes = 0;  // as asked for; 0: what the rest leaves (FIT-9)
  ScoreFacts scores;
  AttentionMemory attention_memory;
  // Speed. weight_read_bytes: what a step of one token reads of the weights, every dense one once,
  // the shared and the top-k experts, the head, one row of the embedding. Each further token of a
  // step adds more_read_bytes (its own experts, its row) until all_read_bytes.
  std::uint64_t weight_read_bytes = 0, more_read_bytes = 0, all_read_bytes = 0;
  std::uint64_t linear_flops = 0;  // of one token, 2 · active parameters, without the head
  std::vector<ReadLayer> reads;
  bool is_moe = false;
};

// One a KV-list entry. Errors: forms_of's, for a scheme that the model's layers cannot have (KV-7).
Result<std::vector<StateLayer>> state_of(const KvList& list, const kv::KvScheme& scheme);

// Layers that no KV-list entry describes; element_bytes is of the activation dtype.
struct DeltaShape {
  std::uint32_t v_heads = 0, v_dim = 0, k_heads = 0, k_dim = 0, conv_width = 0;  // Hv Dv Hk Dk K
};
StateLayer delta_layer(const DeltaShape& shape, std::uint32_t element_bytes) noexcept;
StateLayer short_conv_layer(std::uint32_t conv_width,
                            std::uint32_t hidden,
                            std::uint32_t element_bytes) noexcept;
// index_dim: width of the sparse index's key; 0: none.
StateLayer latent_layer(std::uint32_t kv_lora_rank,
                        std::uint32_t rope_dim,
                        std::uint32_t index_dim,
                        std::uint32_t element_bytes) noexcept;

}  // namespace kvasir::fit
