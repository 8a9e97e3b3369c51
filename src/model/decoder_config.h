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
// What config.json calls a layer (MOD-3); recurrent: gated delta or short convolution.
enum class LayerType : std::uint8_t { full, sliding, recurrent };
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
  bool sinks = false;        // one more logit a head in the softmax's denominator
  bool output_gate = false;  // q_proj yields [query | gate] a head; the output × sigmoid(gate)
  bool v_norm = false;       // RMSNorm without weight on each head of v
  bool v_is_k = false;  // no v_proj: v is k as projected, before its norm and rope; needs v_norm
  // Reads the keys and values of this earlier layer, which has the same shape and window, instead
  // of making its own (KV-41).
  std::optional<std::uint32_t> donor;

  std::uint32_t q_width() const noexcept { return n_heads * head_dim; }
  std::uint32_t kv_width() const noexcept { return n_kv_heads * head_dim; }
  // Columns of q, its gate, k and v side by side; without k and v where the layer borrows them.
  std::uint32_t k_column() const noexcept { return q_width() * (output_gate ? 2 : 1); }
  std::uint32_t qkv_width() const noexcept {
    return donor ? k_column() : k_column() + 2 * kv_width();
  }
  // Of them, outputs of a stored matrix.
  std::uint32_t projected_width() const noexcept { return qkv_width() - (v_is_k ? kv_width() : 0); }
};

// Which positions a query attends: the top_k best of those up to its own by the sparse index's
// score (MOD-36).
struct IndexSpec {
  std::uint32_t n_heads = 0;
  std::uint32_t dim =
      0;  // of a head, and of the key that all heads share; its first rope_dim rotate
  std::uint32_t top_k = 0;
  bool is_shared = false;  // takes the choice of the last layer before it that made its own
};

// Multi-head latent attention (MOD-35). A head of q is [nope_dim | rope_dim]; a token's key and
// value, for all heads, is the latent row [kv_rank | rope_dim].
struct LatentAttentionSpec {
  std::uint32_t n_heads = 0;
  std::uint32_t q_rank = 0;  // q comes from a normed vector of this width; 0: from the input
  std::uint32_t kv_rank = 0;
  std::uint32_t nope_dim = 0;
  std::uint32_t rope_dim = 0;
  std::uint32_t v_dim = 0;
  float scale = 0.0f;      // on q·k, yarn's mscale² included
  float norm_eps = 0.0f;   // of the norms of q's vector and of the latent
  std::uint32_t rope = 0;  // index into DecoderConfig::ropes
  bool bias = false;       // of q_a_proj, kv_a_proj and o_proj
  std::optional<IndexSpec> index;

  std::uint32_t q_head_dim() const noexcept { return nope_dim + rope_dim; }
  std::uint32_t q_width() const noexcept { return n_heads * q_head_dim(); }
  std::uint32_t v_width() const noexcept { return n_heads * v_dim; }
  std::uint32_t latent_width() const noexcept { return n_heads * kv_rank; }  // of absorbed queries
  std::uint32_t row_dim() const noexcept { return kv_rank + rope_dim; }      // of a latent row
  bool has_own_index() const noexcept { return index && !index->is_shared; }
};

// A linear layer of the gated delta rule (MOD-41), in the place of attention.
struct DeltaSpec {
  std::uint32_t n_key_heads = 0;  // divides n_value_heads
  std::uint32_t n_value_heads = 0;
  std::uint32_t key_dim = 0;  // of a head
  std::uint32_t value_dim = 0;
  std::uint32_t conv_kernel = 0;
  bool fused_qkvz = false;  // stored as one in_proj_qkvz, grouped by key head
  bool fused_ba = false;    // stored as one in_proj_ba, grouped alike

  std::uint32_t keys_width() const noexcept { return n_key_heads * key_dim; }
  std::uint32_t values_width() const noexcept { return n_value_heads * value_dim; }
  std::uint32_t conv_width() const noexcept { return 2 * keys_width() + values_width(); }
  // Columns of q, k, v, z, b and a side by side.
  std::uint32_t b_column() const noexcept { return conv_width() + values_width(); }
  std::uint32_t inputs_width() const noexcept { return b_column() + 2 * n_value_heads; }
};

// C ⊙ conv(B ⊙ x) with B, C, x of one projection (MOD-33), in the place of attention.
struct ShortConvSpec {
  std::uint32_t kernel = 0;
  std::uint32_t width = 0;  // channels
  bool bias = false;        // of both projections and of the convolution
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
  bool shared_gate = false;               // the shared expert × sigmoid(its own gate)
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
  AttentionSpec attention;  // of no heads where the layer has one of the next three
  std::optional<LatentAttentionSpec> latent;
  std::optional<DeltaSpec> delta;
  std::optional<ShortConvSpec> short_conv;
  MlpSpec mlp;
  std::optional<MoeSpec> moe;  // instead of the mlp, or beside it

  bool has_mlp() const noexcept { return !moe || moe->beside_mlp; }
  bool is_recurrent() const noexcept { return type == LayerType::recurrent; }
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
  std::string_view final_norm = "norm";  // below "model."
  std::string_view q_norm = "q_norm", k_norm = "k_norm", attention_project = "o_proj";
  std::string_view mlp = "mlp", gate = "gate_proj", up = "up_proj", down = "down_proj";
  std::string_view router = "mlp.gate";
  std::string_view expert_gate = "mlp.experts.*.gate_proj";
  std::string_view expert_up = "mlp.experts.*.up_proj";
  std::string_view expert_down = "mlp.experts.*.down_proj";
  std::string_view shared_expert = "mlp.shared_experts";
  std::string_view shared_gate = "mlp.shared_expert_gate";
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
  bool norm_bias = false;      // of layer norms
  bool norm_plus_one = false;  // stored norm weights are centred on zero
  // Whether they are was told from something else: the mean of each must look like a norm's
  // (MOD-43).
  bool checks_norm_means = false;
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

bool has_sparse_index(const DecoderConfig& config) noexcept;
// The layers that own state, in order: keys and values, or a recurrence; none of an encoder.
KvList kv_list_of(const DecoderConfig& config);
// For each layer the entry of that list it reads: its own or its donor's.
std::vector<std::uint32_t> kv_entries_of(const DecoderConfig& config);

}  // namespace kvasir::model
