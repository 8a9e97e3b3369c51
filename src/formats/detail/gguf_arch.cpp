#include "formats/detail/gguf_arch.h"

#include <array>
#include <charconv>

namespace kvasir::formats {
namespace {

constexpr std::array kCommonNames{
    NamePair{"attn_norm", "input_layernorm"},
    NamePair{"ffn_norm", "post_attention_layernorm"},
    NamePair{"post_attention_norm", "post_attention_layernorm"},
    NamePair{"post_ffw_norm", "post_feedforward_layernorm"},
    NamePair{"attn_q", "self_attn.q_proj"},
    NamePair{"attn_k", "self_attn.k_proj"},
    NamePair{"attn_v", "self_attn.v_proj"},
    NamePair{"attn_qkv", "self_attn.qkv_proj"},
    NamePair{"attn_output", "self_attn.o_proj"},
    NamePair{"attn_q_norm", "self_attn.q_norm"},
    NamePair{"attn_k_norm", "self_attn.k_norm"},
    NamePair{"ffn_gate", "mlp.gate_proj"},
    NamePair{"ffn_up", "mlp.up_proj"},
    NamePair{"ffn_down", "mlp.down_proj"},
    NamePair{"ffn_gate_inp", "mlp.gate"},
    NamePair{"ffn_gate_exps", "mlp.switch_mlp.gate_proj"},
    NamePair{"ffn_up_exps", "mlp.switch_mlp.up_proj"},
    NamePair{"ffn_down_exps", "mlp.switch_mlp.down_proj"},
    NamePair{"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    NamePair{"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    NamePair{"ffn_down_shexp", "mlp.shared_experts.down_proj"},
};
constexpr std::array kRootNames{
    NamePair{"token_embd", "model.embed_tokens"},
    NamePair{"output_norm", "model.norm"},
    NamePair{"token_embd_norm", "model.embedding_norm"},
    NamePair{"output", "lm_head"},
};
constexpr std::array kMixtralNames{
    NamePair{"ffn_gate_inp", "block_sparse_moe.gate"},
    NamePair{"ffn_gate_exps", "block_sparse_moe.switch_mlp.gate_proj"},
    NamePair{"ffn_up_exps", "block_sparse_moe.switch_mlp.up_proj"},
    NamePair{"ffn_down_exps", "block_sparse_moe.switch_mlp.down_proj"},
};
constexpr std::array kPhiNames{NamePair{"ffn_up", "mlp.gate_up_proj"}};
constexpr std::array kGlmNames{
    NamePair{"ffn_up", "mlp.gate_up_proj"},
    NamePair{"post_attention_norm", "post_self_attn_layernorm"},
    NamePair{"post_ffw_norm", "post_mlp_layernorm"},
};
constexpr std::array kGptOssNames{NamePair{"ffn_gate_inp", "mlp.router"}};
constexpr std::array kStarcoderNames{NamePair{"ffn_up", "mlp.c_fc"},
                                     NamePair{"ffn_down", "mlp.c_proj"}};
constexpr std::array kLfm2Names{
    NamePair{"attn_norm", "operator_norm"},
    NamePair{"ffn_norm", "ffn_norm"},
    NamePair{"attn_q_norm", "self_attn.q_layernorm"},
    NamePair{"attn_k_norm", "self_attn.k_layernorm"},
    NamePair{"attn_output", "self_attn.out_proj"},
    NamePair{"ffn_gate", "feed_forward.w1"},
    NamePair{"ffn_down", "feed_forward.w2"},
    NamePair{"ffn_up", "feed_forward.w3"},
    NamePair{"shortconv.conv", "conv.conv"},
    NamePair{"shortconv.in_proj", "conv.in_proj"},
    NamePair{"shortconv.out_proj", "conv.out_proj"},
};
constexpr std::array kQwen3NextNames{
    NamePair{"attn_qkv", "linear_attn.in_proj_qkv"},
    NamePair{"attn_gate", "linear_attn.in_proj_z"},
    NamePair{"ssm_in", "linear_attn.in_proj_qkvz"},
    NamePair{"ssm_ba", "linear_attn.in_proj_ba"},
    NamePair{"ssm_beta_alpha", "linear_attn.in_proj_ba"},
    NamePair{"ssm_conv1d", "linear_attn.conv1d"},
    NamePair{"ssm_norm", "linear_attn.norm"},
    NamePair{"ssm_out", "linear_attn.out_proj"},
    NamePair{"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    NamePair{"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    NamePair{"ffn_down_shexp", "mlp.shared_expert.down_proj"},
    NamePair{"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
};
constexpr std::array kGemmaNames{NamePair{"ffn_norm", "pre_feedforward_layernorm"}};
constexpr std::array kBertNames{
    NamePair{"attn_q", "attention.self.query"},
    NamePair{"attn_k", "attention.self.key"},
    NamePair{"attn_v", "attention.self.value"},
    NamePair{"attn_output", "attention.output.dense"},
    NamePair{"attn_output_norm", "attention.output.LayerNorm"},
    NamePair{"ffn_up", "intermediate.dense"},
    NamePair{"ffn_down", "output.dense"},
    NamePair{"layer_output_norm", "output.LayerNorm"},
};
constexpr std::array kBertRootNames{
    NamePair{"token_embd", "embeddings.word_embeddings"},
    NamePair{"position_embd", "embeddings.position_embeddings"},
    NamePair{"token_types", "embeddings.token_type_embeddings"},
    NamePair{"token_embd_norm", "embeddings.LayerNorm"},
};

// Later files hold the two halves of kv_b_proj absorbed, as stacks of heads.
constexpr std::array kDeepseekNames{
    NamePair{"attn_q_a", "self_attn.q_a_proj"},
    NamePair{"attn_q_a_norm", "self_attn.q_a_layernorm"},
    NamePair{"attn_q_b", "self_attn.q_b_proj"},
    NamePair{"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
    NamePair{"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
    NamePair{"attn_kv_b", "self_attn.kv_b_proj"},
    NamePair{"attn_k_b", "self_attn.embed_q"},
    NamePair{"attn_v_b", "self_attn.unembed_out"},
};

const std::array kArchs{
    GgufArch{"llama", "llama", "LlamaForCausalLM", true, {}},
    GgufArch{"mistral3", "llama", "LlamaForCausalLM", true, {}},
    GgufArch{"qwen2", "qwen2", "Qwen2ForCausalLM", false, {}},
    GgufArch{"qwen3", "qwen3", "Qwen3ForCausalLM", false, {}},
    GgufArch{"qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM", false, {}},
    GgufArch{"phi3", "phi3", "Phi3ForCausalLM", false, kPhiNames},
    GgufArch{"olmo2", "olmo2", "Olmo2ForCausalLM", false, {}},
    GgufArch{"glm4", "glm4", "Glm4ForCausalLM", true, kGlmNames},
    GgufArch{"glm4moe", "glm4_moe", "Glm4MoeForCausalLM", false, {}},
    GgufArch{"deepseek2", "deepseek_v3", "DeepseekV3ForCausalLM", true, kDeepseekNames},
    GgufArch{"granite", "granite", "GraniteForCausalLM", true, {}},
    GgufArch{"smollm3", "smollm3", "SmolLM3ForCausalLM", true, {}},
    GgufArch{"cohere2", "cohere2", "Cohere2ForCausalLM", true, {}},
    GgufArch{"gpt-oss", "gpt_oss", "GptOssForCausalLM", false, kGptOssNames},
    GgufArch{"starcoder2", "starcoder2", "Starcoder2ForCausalLM", false, kStarcoderNames},
    GgufArch{"lfm2", "lfm2", "Lfm2ForCausalLM", false, kLfm2Names},
    GgufArch{"qwen3next", "qwen3_next", "Qwen3NextForCausalLM", false, kQwen3NextNames},
    GgufArch{"gemma", "gemma", "GemmaForCausalLM", false, {}},
    GgufArch{"gemma2", "gemma2", "Gemma2ForCausalLM", false, kGemmaNames},
    GgufArch{"gemma3", "gemma3_text", "Gemma3ForCausalLM", false, kGemmaNames},
    GgufArch{"bert", "bert", "BertModel", false, kBertNames, kBertRootNames, "encoder.layer."},
};
const GgufArch kMixtral{"llama", "mixtral", "MixtralForCausalLM", true, kMixtralNames};

std::string_view translate(std::span<const NamePair> names, std::string_view gguf) noexcept {
  for (const NamePair& pair : names) {
    if (pair.gguf == gguf) return pair.canonical;
  }
  return {};
}

std::string_view translate_back(std::span<const NamePair> names,
                                std::string_view canonical) noexcept {
  for (const NamePair& pair : names) {
    if (pair.canonical == canonical) return pair.gguf;
  }
  return {};
}

std::optional<std::uint64_t> read_index(std::string_view digits) noexcept {
  std::uint64_t n = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return n;
}

// Experts stored apart, as in early mixtral files: "ffn_gate.7" → "block_sparse_moe.experts.7.w1".
std::string separate_expert(std::string_view name) {
  constexpr std::array kParts{NamePair{"ffn_gate", "w1"}, NamePair{"ffn_down", "w2"},
                              NamePair{"ffn_up", "w3"}};
  const std::size_t dot = name.find('.');
  if (dot == std::string_view::npos || !read_index(name.substr(dot + 1))) return {};
  const std::string_view part = translate(kParts, name.substr(0, dot));
  if (part.empty()) return {};
  return std::string("block_sparse_moe.experts.")
      .append(name.substr(dot + 1))
      .append(".")
      .append(part);
}

std::string translate_in_layer(const GgufArch& arch, std::string_view name) {
  if (const std::string_view own = translate(arch.names, name); !own.empty())
    return std::string(own);
  if (const std::string_view common = translate(kCommonNames, name); !common.empty())
    return std::string(common);
  return separate_expert(name);
}

}  // namespace

GgufArch gguf_arch_of(const GgufContent& content) {
  const std::string_view name = content.text_or("general.architecture", "");
  if (name == "llama" && content.whole_or("llama.expert_count", 0) > 0) return kMixtral;
  return gguf_arch_named(name);
}

GgufArch gguf_arch_named(std::string_view name) {
  for (const GgufArch& arch : kArchs) {
    if (arch.gguf == name) return arch;
  }
  return GgufArch{name, name, name, false, {}};
}

std::string canonical_gguf_name(const GgufArch& arch,
                                std::string_view stored,
                                std::uint64_t n_layers) {
  const std::size_t last_dot = stored.rfind('.');
  if (last_dot == std::string_view::npos) return std::string(stored);
  const std::string_view suffix = stored.substr(last_dot);  // ".weight", ".bias"
  std::string_view name = stored.substr(0, last_dot);
  // The only layer's tensors without a suffix. A is stored as it multiplies, −exp(A_log).
  const bool has_no_suffix = suffix == ".ssm_a" || suffix == ".ssm_dt";
  if (has_no_suffix) name = stored;
  if (!name.starts_with("blk.")) {
    std::string_view root = translate(arch.root_names, name);
    if (root.empty()) root = translate(kRootNames, name);
    return root.empty() ? std::string(stored) : std::string(root).append(suffix);
  }
  name.remove_prefix(4);
  const std::size_t dot = name.find('.');
  const auto layer = read_index(name.substr(0, dot));
  if (dot == std::string_view::npos || !layer) return std::string(stored);
  if (*layer >= n_layers) return "mtp." + std::string(stored);
  const std::string prefix = std::string(arch.layer_root) + std::to_string(*layer) + ".";
  if (name.substr(dot + 1) == "exp_probs_b") return prefix + "mlp.gate.e_score_correction_bias";
  if (name.substr(dot + 1) == "attn_sinks") return prefix + "self_attn.sinks";
  if (name.substr(dot + 1) == "ssm_dt") return prefix + "linear_attn.dt_bias";
  if (name.substr(dot + 1) == "ssm_a") return prefix + "linear_attn.A";
  const std::string translated = translate_in_layer(arch, name.substr(dot + 1));
  return translated.empty() ? std::string(stored) : prefix + translated + std::string(suffix);
}

std::optional<std::string> stored_gguf_name(const GgufArch& arch, std::string_view canonical) {
  const std::size_t last_dot = canonical.rfind('.');
  if (last_dot == std::string_view::npos) return std::nullopt;
  const std::string_view suffix = canonical.substr(last_dot);
  std::string_view name = canonical.substr(0, last_dot);
  if (!name.starts_with(arch.layer_root)) {
    std::string_view root = translate_back(arch.root_names, name);
    if (root.empty()) root = translate_back(kRootNames, name);
    if (root.empty()) return std::nullopt;
    return std::string(root).append(suffix);
  }
  name.remove_prefix(arch.layer_root.size());
  const std::size_t dot = name.find('.');
  if (dot == std::string_view::npos || !read_index(name.substr(0, dot))) return std::nullopt;
  std::string_view own = translate_back(arch.names, name.substr(dot + 1));
  if (own.empty()) own = translate_back(kCommonNames, name.substr(dot + 1));
  if (own.empty()) return std::nullopt;
  return "blk." + std::string(name.substr(0, dot + 1)).append(own).append(suffix);
}

}  // namespace kvasir::formats
