// The weights of a decoder as a device packed them, and how they come out of a file: one tensor at
// a time, its pages given back right after (MOD-54).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/progress.h"
#include "base/result.h"
#include "formats/model_files.h"
#include "model/decoder_config.h"
#include "ops/device.h"
#include "ops/moe.h"

namespace kvasir::model {

using Vector = std::vector<float>;  // a norm's weight, a bias; empty: the model has none

struct Linear {
  std::unique_ptr<ops::PackedMatrix> weight;  // [n_out, n_in]
  Vector bias;                                // [n_out] or empty
};

// Linears of one input whose outputs lie side by side: q, k, v or a fused qkv alike.
using SideBySide = std::vector<Linear>;

struct AttentionWeights {
  SideBySide qkv;  // → [qkv_width]
  Vector q_norm;   // [head_dim] or [q_width]
  Vector k_norm;   // [head_dim] or [kv_width]
  Linear out;      // [hidden, q_width]
};

struct MlpWeights {
  SideBySide gate_up;  // → [2 · intermediate]
  Linear down;         // [hidden, intermediate]
};

struct MoeWeights {
  Linear router;                                             // [n_experts, hidden]
  Vector selection_bias;                                     // [n_experts]
  std::vector<std::unique_ptr<ops::PackedMatrix>> matrices;  // owns what the bank points at
  std::vector<ops::ExpertWeights> bank;                      // [n_experts]
  std::optional<MlpWeights> shared;
};

struct LayerWeights {
  Vector attention_in, attention_out, mlp_in, mlp_out;  // norms, [hidden]
  AttentionWeights attention;
  std::optional<MlpWeights> mlp;
  std::optional<MoeWeights> moe;
};

struct DecoderWeights {
  std::unique_ptr<ops::PackedMatrix> embedding;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  Vector norm;                                  // [hidden]
  std::unique_ptr<ops::PackedMatrix> own_head;  // [vocab, hidden]; null when tied

  const ops::PackedMatrix& head() const noexcept { return own_head ? *own_head : *embedding; }
};

// Every tensor that `config` names, and no other: the first one missing, misshapen or left over is
// refused (MOD-5).
Result<DecoderWeights> load_weights(const formats::ModelFiles& files,
                                    const DecoderConfig& config,
                                    ops::Device& device,
                                    bool exact_f32,
                                    const ProgressSink& progress);

// f32 throughout, nothing quantized: such a model keeps its precision (MOD-6).
bool stores_only_f32(const formats::ModelFiles& files);

std::uint64_t size_bytes(const DecoderWeights& weights);

}  // namespace kvasir::model
