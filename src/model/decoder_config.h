// DecoderConfig: the data sheet of a decoder model: sizes, per-layer facts, multipliers and the
// names of its tensors. A family fills it from config.json, the one graph of model/ runs it. Values
// only; every number is within the bounds of detail/config_reader.h, so nothing that reads a sheet
// checks it again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/kv_list.h"
#include "ops/elementwise.h"
#include "ops/moe.h"

namespace kvasir::model {

enum class QkNorm : std::uint8_t { none, per_head, full_width };

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

  std::uint32_t q_width() const noexcept { return n_heads * head_dim; }
  std::uint32_t kv_width() const noexcept { return n_kv_heads * head_dim; }
  std::uint32_t qkv_width() const noexcept { return q_width() + 2 * kv_width(); }
};

struct MlpSpec {  // down(act(gate(x)) ⊙ up(x))
  std::uint32_t intermediate = 0;
  ops::Activation activation = ops::Activation::silu;
  bool fused_gate_up = false;  // stored as one gate_up_proj
  bool bias = false;
};

struct MoeSpec {
  std::uint32_t n_experts = 0;
  std::uint32_t top_k = 0;
  std::uint32_t intermediate = 0;         // of one expert
  std::uint32_t shared_intermediate = 0;  // of the shared expert; 0: none
  ops::Activation activation = ops::Activation::silu;
  ops::RouterScore score = ops::RouterScore::softmax;
  bool has_selection_bias = false;
  bool renormalize = false;
  float scale = 1.0f;
  std::uint32_t n_groups = 1;
  std::uint32_t topk_groups = 1;
};

struct LayerSpec {
  AttentionSpec attention;
  MlpSpec mlp;
  std::optional<MoeSpec> moe;  // instead of the mlp
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
  float norm_eps = 0.0f;
  bool norm_plus_one = false;  // stored norm weights are centred on zero
  bool tied_head = false;      // the output head is the embedding table
  float embedding_scale = 1.0f;
  float residual_scale = 1.0f;  // on what a block adds to the residual stream
  float logit_scale = 1.0f;
  float logit_softcap = 0.0f;
};

KvList kv_list_of(const DecoderConfig& config);

}  // namespace kvasir::model
