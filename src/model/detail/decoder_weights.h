// The weights of a decoder as a device packed them, and how they come out of a file: one tensor at
// a time, its pages given back right after (MOD-54).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/progress.h"
#include "base/result.h"
#include "formats/model_files.h"
#include "model/decoder_config.h"
#include "ops/device.h"
#include "ops/moe.h"
#include "tensor/buffer.h"

namespace kvasir::model {

// Numbers that ops read from the device's memory: a norm's weight, a bias. Empty: the model has
// none.
class Vector {
 public:
  static Result<Vector> make(ops::Device& device, std::span<const float> values);
  const float* data() const noexcept { return memory_.f32(); }
  std::size_t size() const noexcept { return memory_.size_bytes() / sizeof(float); }
  bool empty() const noexcept { return size() == 0; }

 private:
  Buffer memory_;
};

struct Linear {
  std::unique_ptr<ops::PackedMatrix> weight;  // [n_out, n_in]
  Vector bias;                                // [n_out] or empty
};

// Linears of one input whose outputs lie side by side: q, k, v or a fused qkv alike.
using SideBySide = std::vector<Linear>;

struct Norm {     // of the residual stream, or a layer norm of another vector
  Vector weight;  // [hidden]; empty: no norm here
  Vector bias;    // [hidden] or empty
  bool empty() const noexcept { return weight.empty(); }
};

struct AttentionWeights {
  SideBySide qkv;  // → [projected_width]
  Vector q_norm;   // [head_dim] or [q_width]
  Vector k_norm;   // [head_dim] or [kv_width]
  Vector sinks;    // [n_heads] or empty
  Linear out;      // [hidden, q_width]
};

struct IndexWeights {
  Linear q;             // [n_heads · dim, q_rank]
  Linear k;             // [dim, hidden]
  Norm k_norm;          // [dim], a layer norm
  Linear head_weights;  // [n_heads, hidden]
};

struct LatentWeights {
  Linear q_down;   // [q_rank, hidden]; no weight where q comes from the input
  Vector q_norm;   // [q_rank]
  Linear q;        // [q_width, q_rank or hidden]
  Linear kv;       // [row_dim, hidden]
  Vector kv_norm;  // [kv_rank]
  std::vector<std::unique_ptr<ops::PackedMatrix>> matrices;  // owns what the two below point at
  std::vector<const ops::PackedMatrix*> into_latent;    // W_uk of each head: [kv_rank, nope_dim]
  std::vector<const ops::PackedMatrix*> out_of_latent;  // W_uv of each head: [v_dim, kv_rank]
  Linear out;                                           // [hidden, v_width]
  std::optional<IndexWeights> index;                    // of a layer with an index of its own
};

struct DeltaWeights {
  SideBySide in;   // → q | k | v | z | b | a
  Vector conv;     // [conv_kernel, conv_width]
  Vector a_log;    // [n_value_heads]
  Vector dt_bias;  // same
  Vector norm;     // [value_dim]
  Linear out;      // [hidden, values_width]
};

struct ShortConvWeights {
  Linear in;         // → B | C | x, [3 · width, hidden]
  Vector conv;       // [kernel, width]
  Vector conv_bias;  // [width] or empty
  Linear out;        // [hidden, width]
};

struct MlpWeights {
  SideBySide gate_up;  // → [2 · intermediate]; not gated: → [intermediate]
  Linear down;         // [hidden, intermediate]
  Vector ones;         // not gated: [intermediate], in the place of up
};

struct MoeWeights {
  Linear router;                                             // [n_experts, hidden]
  Vector selection_bias;                                     // [n_experts]
  Vector router_scale;                                       // [hidden] or empty
  Vector expert_scales;                                      // [n_experts] or empty
  std::vector<std::unique_ptr<ops::PackedMatrix>> matrices;  // owns what the bank points at
  std::vector<Vector> expert_biases;                         // same
  std::vector<ops::ExpertWeights> bank;                      // [n_experts]
  std::optional<MlpWeights> shared;
  std::optional<Linear> shared_gate;  // [1, hidden]
};

struct PerLayerWeights {
  Linear gate;  // [per_layer_input, hidden]
  Linear out;   // [hidden, per_layer_input]
  Norm norm;
};

struct LayerWeights {
  Norm attention_in, attention_out, mlp_in, mlp_out;
  Norm mlp_branch_out, experts_in, experts_out;
  AttentionWeights attention;  // or one of the next three
  std::optional<LatentWeights> latent;
  std::optional<DeltaWeights> delta;
  std::optional<ShortConvWeights> short_conv;
  std::optional<MlpWeights> mlp;
  std::optional<MoeWeights> moe;
  std::optional<PerLayerWeights> per_layer;
  float scalar = 1.0f;
};

// A token's own inputs to all layers, side by side: [n_layers · per_layer_input] columns.
struct PerLayerInputWeights {
  std::unique_ptr<ops::PackedMatrix> table;  // [vocab, columns]
  Linear projection;                         // [columns, hidden]
  Vector norm;                               // [per_layer_input]
};

// What adds to an encoder's token embeddings, and the norm of the sum.
struct EncoderInputWeights {
  std::unique_ptr<ops::PackedMatrix> positions;  // [n_positions, hidden] or null
  Vector token_type;                             // [hidden] or empty
  Norm norm;
};

struct DecoderWeights {
  std::unique_ptr<ops::PackedMatrix> embedding;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  std::optional<PerLayerInputWeights> per_layer_inputs;
  std::optional<EncoderInputWeights> encoder_input;
  Norm norm;
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

// Looks every tensor up as load_weights() does, and packs nothing.
Status rehearse_weights(const formats::ModelFiles& files, const DecoderConfig& config);

// f32 throughout, nothing quantized: such a model keeps its precision (MOD-6).
bool stores_only_f32(const formats::ModelFiles& files);

std::uint64_t size_bytes(const DecoderWeights& weights);

}  // namespace kvasir::model
