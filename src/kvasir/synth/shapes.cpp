#include "kvasir/synth/shapes.h"

#include "kvasir/synth.h"

namespace kvasir::synth {
namespace {

constexpr Shape kShapes[] = {
    {"smollm2-135m", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
      "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
      "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 100000.0,
      "hidden_act": "silu", "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2})"},
    {"qwen3-0.6b", R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
      "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "head_dim": 128,
      "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 151936,
      "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
      "hidden_act": "silu", "attention_bias": false, "tie_word_embeddings": true,
      "bos_token_id": 151643, "eos_token_id": 151645})"},
    {"qwen3-4b", R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
      "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "head_dim": 128,
      "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 151936,
      "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
      "hidden_act": "silu", "attention_bias": false, "tie_word_embeddings": true,
      "bos_token_id": 151643, "eos_token_id": 151645})"},
    {"qwen3-30b-a3b", R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
      "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48, "head_dim": 128,
      "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 151936,
      "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
      "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [],
      "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
      "hidden_act": "silu", "attention_bias": false, "tie_word_embeddings": false,
      "bos_token_id": 151643, "eos_token_id": 151645})"},
    {"llama-3.2-1b", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "head_dim": 64,
      "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
      "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
      "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
                       "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
      "hidden_act": "silu", "attention_bias": false, "mlp_bias": false,
      "tie_word_embeddings": true, "bos_token_id": 128000, "eos_token_id": 128001})"},
    {"llama-3.1-8b", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "head_dim": 128,
      "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
      "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
      "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                       "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
      "hidden_act": "silu", "attention_bias": false, "mlp_bias": false,
      "tie_word_embeddings": false, "bos_token_id": 128000, "eos_token_id": 128001})"},
};

}  // namespace

std::span<const Shape> shapes() noexcept { return kShapes; }

std::string shape_names() {
  std::string out;
  for (const Shape& shape : kShapes) out.append(out.empty() ? "" : ", ").append(shape.name);
  return out;
}

}  // namespace kvasir::synth
