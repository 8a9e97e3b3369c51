// DecoderConfig: the data sheet of a decoder model, or of an encoder, which is one that looks both
// ways: sizes, per-layer facts, multipliers and the names of its tensors. A family fills it from
// config.json, the one graph of model/ runs it. Values only; every number is within the bounds of
// detail/config_reader.h, so nothing that reads a sheet checks it again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/kv_list.h"
#include "ops/elementwise.h"
#include "ops/moe.h"
#include "tensor/dtype.h"

namespace kvasir::model {

enum class QkNorm : std::uint8_t { none, per_head, full_width };
enum class LayerType : std::uint8_t { full, sliding };  // what config.json calls a layer (MOD-3)
enum class NormKind : std::uint8_t { rms, layer };

struct AttentionSpec {
  std::uint32_t n_heads = 0;
  std::uint32_t n_kv_heads = 0;  // divides n_heads
  std::uint32_t head_dim = 0;
  float scale = 0.0f;        // on q·k
  float softcap = 0.0f;      // on scores; 0: none
  std::uint32_t window = 0;  // 0: full attention
  std::optional<std::uint32_t>
      rope;  // index into DecoderConfig::ropes; none: no positions in this layer
  QkNorm qk_norm = QkNorm::none;
  bool fused_qkv = false;  // stored as one qkv_proj
  bool qkv_bias = false;
  bool out_bias = false;
  bool sinks = false;   // one more logit a head in the softmax's denominator
  bool v_norm = false;  // RMSNorm without weight on each head of v
  bool v_is_k = false;  // no v_proj: v is k as projected, before its norm and rope; needs v_norm
  // Reads the keys and values of this earlier layer, which has the same shape and window, instead
  // of making its own (KV-41).
  std::optional<std::uint32_t> donor;

  std::uint32_t q_width() const noexcept { return n_heads * head_dim; }
  std::uint32_t kv_width() const noexcept { return n_kv_heads * head_dim; }
  // Columns of q, k and v side by side; q alone where the layer borrows the others.
  std::uint32_t qkv_width() const noexcept {
    return donor ? q_width() : q_width() + 2 * kv_width();
  }
  // Of them, outputs of a stored matrix.
  std::uint32_t projected_width() const noexcept { return qkv_width() - (v_is_k ? kv_width() : 0); }
};

struct MlpSpec {  // down(act(gate(x)) ⊙ up(x)), or c_proj(act(c_fc(x)))
  std::uint32_t intermediate = 0;
  ops::Activation activation = ops::Activation::silu;
  bool is_gated = true;
  bool fused_gate_up = false;  // stored as one gate_up_proj
  bool bias = false;
};

// How the experts' gate and up are stored.
enum class ExpertLayout : std::uint8_t {
  apart,             // gate_proj and up_proj
  fused,             // one gate_up_proj, the gate's rows first
  fused_interleaved  // one gate_up_proj, rows of gate and up in turn
};

struct MoeSpec {
  std::uint32_t n_experts = 0;
  std::uint32_t top_k = 0;
  std::uint32_t intermediate = 0;         // of one expert
  std::uint32_t shared_intermediate = 0;  // of the shared expert; 0: none
  ops::Activation activation = ops::Activation::silu;
  float activation_limit = 0.0f;  // of clamped_swiglu
  ExpertLayout layout = ExpertLayout::apart;
  bool inputs_first = false;  // dense experts are stored [n_experts, n_in, n_out]
  bool bias = false;          // of the router and of the experts
  bool beside_mlp = false;    // the layer has its mlp too; their normed outputs add up (MOD-25)
  bool router_norm =
      false;  // the router reads rms(residual) · its own scale · hidden^-1/2 (MOD-74)
  bool expert_scales = false;  // a stored factor of each expert's weight
  ops::RouterScore score = ops::RouterScore::softmax;
  bool has_selection_bias = false;
  bool renormalize = false;
  float scale = 1.0f;
  std::uint32_t n_groups = 1;
  std::uint32_t topk_groups = 1;
};

struct LayerSpec {
  LayerType type = LayerType::full;
  AttentionSpec attention;
  MlpSpec mlp;
  std::optional<MoeSpec> moe;  // instead of the mlp, or beside it

  bool has_mlp() const noexcept { return !moe || moe->beside_mlp; }
};

// cos and sin of position · inverse_frequencies[pair], times the attention factor.
struct RopeSpec {
  std::vector<double> inverse_frequencies;  // [n_pairs], radians a position
  double attention_factor = 1.0;
  bool interleaved = false;
};

// Names below "model.layers.{i}."; an empty norm name: the block has no such norm.
struct LayerNames {
  std::string_view attention_in = "input_layernorm";
  std::string_view attention_out;
  std::string_view mlp_in = "post_attention_layernorm";
  std::string_view mlp_out;
  std::string_view router = "mlp.gate";
  std::string_view expert_gate = "mlp.experts.*.gate_proj";
  std::string_view expert_up = "mlp.experts.*.up_proj";
  std::string_view expert_down = "mlp.experts.*.down_proj";
  std::string_view shared_expert = "mlp.shared_experts";
  // With ".weight", and ".bias" or "_bias", as the files have it.
  std::string_view expert_suffix = ".weight", expert_bias_suffix = ".bias";
  std::string_view expert_gate_up;  // fused layouts
  std::string_view router_scale, expert_scales;
  std::string_view mlp_branch_out, experts_in, experts_out;  // norms where experts are beside
};

// What an encoder has beside or instead (MOD-37, MOD-38). Its attention looks both ways over whole
// inputs, of a sliding layer over the keys j with |q - j| < window; it keeps no state (MOD-61).
struct EncoderSpec {
  std::uint32_t n_positions = 0;    // of a table of learned positions; 0: none
  std::uint32_t n_token_types = 0;  // every token is of the first; 0: none
  bool norms_residual = false;      // norms follow the sum: residual = norm(residual + branch)
  // Names of modules, those of layers below layer_root + "{i}."; an empty one: there is no such.
  std::string_view tokens = {}, positions = {}, token_types = {}, input_norm = {};
  std::string_view layer_root = {}, final_norm = {};
  std::string_view qkv = {};  // fused; else:
  std::string_view q = {}, k = {}, v = {};
  std::string_view attention_out = {}, mlp_up = {}, mlp_down = {};
  // Before the block, or after it where norms_residual.
  std::string_view attention_norm = {}, mlp_norm = {};
};

struct DecoderConfig {
  std::string family;  // "llama"
  std::uint32_t hidden = 0;
  std::uint32_t vocab = 0;
  std::uint32_t max_positions = 0;  // served: at most what the model allows
  std::uint32_t n_draft_layers =
      0;  // layers stored behind the last one for drafting, left unread (MOD-63)
  std::vector<LayerSpec> layers;
  std::vector<RopeSpec> ropes;
  std::string
      rope_choice;  // "longrope:long", "longrope:short" or empty: part of numerics_id (MOD-2)
  LayerNames names;
  NormKind norm_kind = NormKind::rms;
  float norm_eps = 0.0f;
  bool norm_bias = false;        // of layer norms
  bool norm_plus_one = false;    // stored norm weights are centred on zero
  bool parallel_blocks = false;  // attention and mlp read the same normed input
  bool tied_head = false;        // the output head is the embedding table
  float embedding_scale = 1.0f;
  // Where set, scales of embedding rows are rounded to this type of the weights, unless the model
  // runs in f32 throughout.
  std::optional<DType> embedding_scale_type;
  float residual_scale = 1.0f;  // on what a block adds to the residual stream
  float logit_scale = 1.0f;
  float logit_softcap = 0.0f;
  std::uint32_t per_layer_input =
      0;  // width of a token's own input to each layer; 0: none (MOD-24)
  float per_layer_input_scale = 1.0f;  // on rows of its table
  bool layer_scalar = false;           // each layer ends with a product by a stored number
  bool has_head = true;  // false: an embedding model, whose output is the normed hidden rows
  std::optional<EncoderSpec> encoder;

  std::uint32_t per_layer_inputs_width() const noexcept {  // of all layers, side by side
    return per_layer_input * static_cast<std::uint32_t>(layers.size());
  }
};

// The layers that own keys and values, in order; none of an encoder.
KvList kv_list_of(const DecoderConfig& config);
// For each layer the entry of that list it reads: its own or its donor's.
std::vector<std::uint32_t> kv_entries_of(const DecoderConfig& config);

}  // namespace kvasir::model
