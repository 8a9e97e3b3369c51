#include "formats/detail/gguf_config.h"

#include <algorithm>
#include <cstring>

namespace kvasir::formats {
namespace {

class ConfigMaker {
 public:
  ConfigMaker(const GgufContent& content,
              const GgufArch& arch,
              const std::vector<GgufTensor>& tensors)
      : content_(content), arch_(arch), tensors_(tensors), prefix_(std::string(arch.gguf) + ".") {}

  Result<json::Value> make() {
    if (arch_.gguf.empty()) return invalid("metadata 'general.architecture' is missing");
    KVASIR_TRY_DO(add_shape());
    add_rope();
    add_tokens();
    add_experts();
    add_family();
    if (const auto* random = content_.find(kGgufRandomWeights);
        random && random->number().value_or(0.0) != 0.0) {
      set(kRandomWeights, true);
    }
    return json::Value(std::move(out_));
  }

 private:
  const GgufValue* find(std::string_view key) const {
    return content_.find(prefix_ + std::string(key));
  }
  std::uint64_t whole(std::string_view key, std::uint64_t other) const {
    return content_.whole_or(prefix_ + std::string(key), other);
  }
  double number(std::string_view key, double other) const {
    return content_.number_or(prefix_ + std::string(key), other);
  }
  bool is_latent() const { return arch_.model_type == "deepseek_v3"; }
  const GgufTensor* tensor(std::string_view name) const {
    const auto it = std::find_if(tensors_.begin(), tensors_.end(),
                                 [&](const GgufTensor& t) { return t.name == name; });
    return it == tensors_.end() ? nullptr : &*it;
  }
  void set(std::string_view member, json::Value value) { out_[member] = std::move(value); }
  void set_number(std::string_view member, std::string_view key) {  // only when the file has it
    if (const auto* value = find(key); value && value->number()) set(member, value->to_json());
  }

  // A count that some architectures store per layer; equal values are one value. Zeros are those of
  // layers that do not attend, where the architecture has such.
  Result<std::uint64_t> uniform(std::string_view key, std::uint64_t other) const {
    const GgufValue* value = find(key);
    if (!value || !value->is_array()) return whole(key, other);
    std::vector<double> all = value->numbers();
    if (arch_.model_type == "lfm2" || arch_.model_type == "qwen3_next") std::erase(all, 0.0);
    const bool is_uniform =
        !all.empty() && std::all_of(all.begin(), all.end(), [&](double n) { return n == all[0]; });
    if (!is_uniform || all[0] < 0 || all[0] > 1e9)
      return unsupported("metadata '" + prefix_ + std::string(key) +
                         "' differs from layer to layer");
    return static_cast<std::uint64_t>(all[0]);
  }

  Status add_shape() {
    const std::uint64_t hidden = whole("embedding_length", 0);
    KVASIR_TRY(const std::uint64_t n_heads, uniform("attention.head_count", 0));
    KVASIR_TRY(const std::uint64_t n_kv_heads, uniform("attention.head_count_kv", n_heads));
    KVASIR_TRY(const std::uint64_t intermediate, uniform("feed_forward_length", 0));
    head_dim_ = whole("attention.key_length", n_heads > 0 ? hidden / n_heads : 0);
    if (is_latent()) {
      head_dim_ = whole("rope.dimension_count", 0);  // of a head, only these columns rotate
    } else if (whole("attention.value_length", head_dim_) != head_dim_) {
      return unsupported("value heads of another size than key heads");
    }
    const GgufTensor* embedding = tensor("token_embd.weight");
    set("architectures", json::Array{arch_.architecture});
    set("model_type", arch_.model_type);
    set("hidden_size", hidden);
    set("num_hidden_layers", gguf_layer_count(content_));
    set("num_attention_heads", n_heads);
    set("num_key_value_heads", n_kv_heads);
    set("head_dim", head_dim_);
    set("intermediate_size", intermediate);
    set("vocab_size", embedding ? embedding->shape.front() : whole("vocab_size", 0));
    set("max_position_embeddings", whole("context_length", 0));
    set("rms_norm_eps", number("attention.layer_norm_rms_epsilon", 1e-5));
    set("hidden_act", "silu");
    set("tie_word_embeddings", tensor("output.weight") == nullptr);
    set("attention_bias",
        tensor("blk.0.attn_q.bias") != nullptr || tensor("blk.0.attn_qkv.bias") != nullptr);
    set("mlp_bias", tensor("blk.0.ffn_up.bias") != nullptr);
    set("kvasir_rope_interleaved", arch_.rope_interleaved);
    return {};
  }

  json::Array factors_of(const GgufTensor& tensor) const {
    json::Array out;
    if (tensor.type != 0) return out;  // llama.cpp writes rope factors as f32
    for (std::size_t at = 0; at + 4 <= tensor.bytes.size(); at += 4) {
      float factor = 0;
      std::memcpy(&factor, tensor.bytes.data() + at, sizeof factor);
      out.emplace_back(static_cast<double>(factor));
    }
    return out;
  }

  // One table of divisors per frequency, already worked out by the converter (llama3): the same
  // angles as longrope with that table for any length and no attention factor.
  void add_rope_tables(json::Object& rope) const {
    if (const GgufTensor* factors = tensor("rope_freqs.weight")) {
      rope["rope_type"] = "longrope";
      rope["long_factor"] = factors_of(*factors);
      rope["short_factor"] = factors_of(*factors);
      rope["attention_factor"] = 1.0;
      rope["original_max_position_embeddings"] =
          whole("rope.scaling.original_context_length", whole("context_length", 0));
    }
    const GgufTensor* longs = tensor("rope_factors_long.weight");
    const GgufTensor* shorts = tensor("rope_factors_short.weight");
    if (longs && shorts) {
      rope["rope_type"] = "longrope";
      rope["long_factor"] = factors_of(*longs);
      rope["short_factor"] = factors_of(*shorts);
      if (const auto* factor = find("rope.scaling.attn_factor"))
        rope["attention_factor"] = factor->number().value_or(1.0);
    }
  }

  json::Object rope_scaling() const {
    json::Object rope;
    rope["rope_type"] = "default";
    rope["rope_theta"] = number("rope.freq_base", 10000.0);
    const std::string_view type = content_.text_or(prefix_ + "rope.scaling.type", "none");
    const double factor = number("rope.scaling.factor", number("rope.scale_linear", 1.0));
    if ((type == "linear" || (type == "none" && find("rope.scale_linear"))) && factor != 1.0 &&
        factor > 0.0) {
      rope["rope_type"] = "linear";
      rope["factor"] = factor;
    }
    if (type != "none" && type != "linear" && type != "yarn")
      rope["rope_type"] = std::string(type);  // whoever reads it refuses it by name
    if (type == "yarn") {
      rope["rope_type"] = "yarn";
      rope["factor"] = factor;
      rope["beta_fast"] = number("rope.scaling.yarn_beta_fast", 32.0);
      rope["beta_slow"] = number("rope.scaling.yarn_beta_slow", 1.0);
    }
    if (const std::uint64_t original = whole("rope.scaling.original_context_length", 0)) {
      rope["original_max_position_embeddings"] = original;
    }
    add_rope_tables(rope);
    return rope;
  }

  void add_rope() {
    json::Object rope = rope_scaling();
    const std::uint64_t n_rotated = whole("rope.dimension_count", head_dim_);
    const double part = head_dim_ > 0 && n_rotated < head_dim_
                            ? static_cast<double>(n_rotated) / static_cast<double>(head_dim_)
                            : 1.0;
    rope["partial_rotary_factor"] = part;
    set("partial_rotary_factor", part);
    if (const json::Value* original = rope.find("original_max_position_embeddings"))
      set("original_max_position_embeddings", *original);
    set("rope_parameters", std::move(rope));
  }

  void add_tokens() {
    // Null: not said, which some converters say by a number.
    const auto id_of = [&](std::string_view name) {
      const auto* id = content_.find("tokenizer.ggml." + std::string(name) + "_token_id");
      return id && id->whole() == 0xffffffffu ? nullptr : id;
    };
    if (const auto* bos = id_of("bos"); bos && bos->whole()) set("bos_token_id", *bos->whole());
    if (const auto* pad = id_of("padding"); pad && pad->whole()) set("pad_token_id", *pad->whole());
    json::Array ends;
    std::vector<std::uint64_t> seen;
    for (const std::string_view name : {"eos", "eot", "eom"}) {
      const auto* id = id_of(name);
      if (!id || !id->whole() || std::find(seen.begin(), seen.end(), *id->whole()) != seen.end())
        continue;
      seen.push_back(*id->whole());
      ends.emplace_back(*id->whole());
    }
    if (ends.size() == 1) set("eos_token_id", ends[0]);
    if (ends.size() > 1) set("eos_token_id", std::move(ends));
  }

  void add_experts() {
    const std::uint64_t n_experts = whole("expert_count", 0);
    if (n_experts == 0) return;
    for (const std::string_view member : {"num_experts", "num_local_experts", "n_routed_experts"})
      set(member, n_experts);
    set_number("num_experts_per_tok", "expert_used_count");
    set_number("moe_intermediate_size", "expert_feed_forward_length");
    set_number("n_shared_experts", "expert_shared_count");
    set_number("first_k_dense_replace", "leading_dense_block_count");
    set_number("routed_scaling_factor", "expert_weights_scale");
    set("n_group", whole("expert_group_count", 1));
    set("topk_group", whole("expert_group_used_count", 1));
    set("norm_topk_prob", number("expert_weights_norm", 1.0) != 0.0);
  }

  // Every period-th layer attends to everything.
  void set_windows(std::uint64_t period, std::uint64_t window = 4096) {
    json::Array types;
    for (std::uint64_t layer = 0; layer < gguf_layer_count(content_); ++layer) {
      types.emplace_back((layer + 1) % period == 0 ? "full_attention" : "sliding_attention");
    }
    set("layer_types", std::move(types));
    set("sliding_window", whole("attention.sliding_window", window));
  }

  // Gemma scales queries by the head's size, its largest variants (named by their depth) by hidden
  // / heads.
  void add_gemma(std::uint64_t depth_of_largest) {
    const auto n_heads = static_cast<std::uint64_t>(*out_.find("num_attention_heads")->as_int());
    const bool is_largest = gguf_layer_count(content_) == depth_of_largest && n_heads > 0;
    set("query_pre_attn_scalar", is_largest ? whole("embedding_length", 0) / n_heads : head_dim_);
    set("hidden_activation", "gelu_pytorch_tanh");
    set("hidden_act", "gelu_pytorch_tanh");
    set("kvasir_norms_have_one", true);
    set_number("attn_logit_softcapping", "attn_logit_softcapping");
    set_number("final_logit_softcapping", "final_logit_softcapping");
  }

  void add_gemma3_rope() {
    json::Object local;
    local["rope_type"] = "default";
    local["rope_theta"] = number("rope.freq_base_swa", 10000.0);
    json::Object rope;
    rope["full_attention"] = *out_.find("rope_parameters");
    rope["sliding_attention"] = std::move(local);
    set("rope_parameters", std::move(rope));
  }

  // Lengths of absorbed heads are those of latent rows; "_mla" ones are the model's own.
  void add_deepseek() {
    const std::uint64_t key = whole("attention.key_length_mla", whole("attention.key_length", 0));
    set_number("q_lora_rank", "attention.q_lora_rank");
    set_number("kv_lora_rank", "attention.kv_lora_rank");
    set("qk_rope_head_dim", head_dim_);
    set("qk_nope_head_dim", key - std::min(key, head_dim_));
    set("v_head_dim", whole("attention.value_length_mla", whole("attention.value_length", 0)));
    set("first_k_dense_replace", whole("leading_dense_block_count", 0));
    set("routed_scaling_factor", number("expert_weights_scale", 1.0));
    constexpr std::uint64_t kSigmoid = 2;  // absent in files of DeepSeek-V2
    set("scoring_func", whole("expert_gating_func", 1) == kSigmoid ? "sigmoid" : "softmax");
    if (const double multiplier = number("rope.scaling.yarn_log_multiplier", 0.0);
        multiplier > 0.0) {
      json::Object rope = *out_.find("rope_parameters")->as_object();
      rope["mscale"] = rope["mscale_all_dim"] = 10.0 * multiplier;  // stored as 0.1 · mscale
      set("rope_parameters", std::move(rope));
    }
  }

  void add_gpt_oss() {
    set_windows(2, 128);
    set("intermediate_size", whole("expert_feed_forward_length", whole("feed_forward_length", 0)));
    json::Object rope = *out_.find("rope_parameters")->as_object();
    rope["truncate"] = false;
    set("rope_parameters", std::move(rope));
  }

  // Layers without heads for keys are convolutions.
  void add_lfm2() {
    const GgufValue* heads = find("attention.head_count_kv");
    json::Array types;
    if (heads && heads->is_array()) {
      for (const double n : heads->numbers())
        types.emplace_back(n == 0 ? "conv" : "full_attention");
    }
    if (!types.empty()) set("layer_types", std::move(types));
    set_number("conv_L_cache", "shortconv.l_cache");
    set("block_auto_adjust_ff_dim", false);  // feed_forward_length is the adjusted one
  }

  void add_qwen3_next() {
    const std::uint64_t n_values = whole("ssm.time_step_rank", 0);
    set("kvasir_norms_have_one", true);
    set("full_attention_interval", whole("full_attention_interval", 4));
    set_number("linear_conv_kernel_dim", "ssm.conv_kernel");
    set_number("linear_key_head_dim", "ssm.state_size");
    set_number("linear_num_key_heads", "ssm.group_count");
    set("linear_num_value_heads", n_values);
    if (n_values > 0) set("linear_value_head_dim", whole("ssm.inner_size", 0) / n_values);
    set_number("shared_expert_intermediate_size", "expert_shared_feed_forward_length");
  }

  void add_family() {
    if (arch_.model_type == "gemma") {
      add_gemma(0);
    } else if (arch_.model_type == "gpt_oss") {
      add_gpt_oss();
    } else if (is_latent()) {
      add_deepseek();
    } else if (arch_.model_type == "lfm2") {
      add_lfm2();
    } else if (arch_.model_type == "qwen3_next") {
      add_qwen3_next();
    } else if (arch_.model_type == "starcoder2") {
      set("hidden_act", "gelu_pytorch_tanh");
      set_number("norm_epsilon", "attention.layer_norm_epsilon");
      set("use_bias", tensor("blk.0.attn_q.bias") != nullptr);
    } else if (arch_.model_type == "bert") {
      set("hidden_act", "gelu");
      set_number("layer_norm_eps", "attention.layer_norm_epsilon");
      if (const GgufTensor* types = tensor("token_types.weight"))
        set("type_vocab_size", types->shape.size() > 1 ? types->shape.front() : 1);
    } else if (arch_.model_type == "cohere2") {
      set_windows(4);
      set_number("layer_norm_eps", "attention.layer_norm_epsilon");
      set_number("logit_scale", "logit_scale");
    } else if (arch_.model_type == "gemma2") {
      add_gemma(46);
      set_windows(2);
    } else if (arch_.model_type == "gemma3_text") {
      add_gemma(62);
      set_windows(6);
      add_gemma3_rope();
    } else if (arch_.model_type == "granite") {
      set_number("embedding_multiplier", "embedding_scale");
      set_number("residual_multiplier", "residual_scale");
      set_number("attention_multiplier", "attention.scale");
      set_number("logits_scaling", "logit_scale");
    } else if (arch_.model_type == "smollm3") {
      json::Array rotates;  // llama.cpp's fixed rule: every fourth layer has no rope
      for (std::uint64_t layer = 0; layer < gguf_layer_count(content_); ++layer)
        rotates.emplace_back((layer + 1) % 4 == 0 ? 0 : 1);
      set("no_rope_layers", std::move(rotates));
    } else if (arch_.model_type == "phi3") {
      set_number("sliding_window", "attention.sliding_window");
    } else if (arch_.model_type == "qwen3_moe") {
      set("decoder_sparse_step", 1);
      set("mlp_only_layers", json::Array{});
    } else if (arch_.model_type == "glm4_moe") {
      const std::uint64_t first_moe = whole("leading_dense_block_count", 0);
      set("use_qk_norm",
          tensor("blk." + std::to_string(first_moe) + ".attn_q_norm.weight") != nullptr);
    }
  }

  const GgufContent& content_;
  const GgufArch& arch_;
  const std::vector<GgufTensor>& tensors_;
  std::string prefix_;
  std::uint64_t head_dim_ = 0;
  json::Object out_;
};

}  // namespace

std::uint64_t gguf_layer_count(const GgufContent& content) {
  constexpr std::uint64_t kMaxLayers = 100'000;  // lists with a member per layer are made from this
  const std::string prefix = std::string(content.text_or("general.architecture", "")) + ".";
  const std::uint64_t n = content.whole_or(prefix + "block_count", 0);
  const std::uint64_t n_heads_after = content.whole_or(prefix + "nextn_predict_layers", 0);
  return n > kMaxLayers || n_heads_after > n ? 0 : n - n_heads_after;
}

Result<json::Value> gguf_config(const GgufContent& content,
                                const GgufArch& arch,
                                const std::vector<GgufTensor>& tensors) {
  return ConfigMaker(content, arch, tensors).make();
}

}  // namespace kvasir::formats
