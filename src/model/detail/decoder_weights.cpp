#include "model/detail/decoder_weights.h"

#include <algorithm>
#include <charconv>
#include <string>

namespace kvasir::model {
namespace {

class WeightLoader {
 public:
  WeightLoader(const formats::ModelFiles& files,
               const DecoderConfig& config,
               ops::Device& device,
               bool exact_f32,
               const ProgressSink& progress)
      : files_(files),
        config_(config),
        device_(device),
        exact_f32_(exact_f32),
        progress_(progress) {
    for (const formats::TensorInfo& tensor : files.tensors()) total_bytes_ += tensor.size_bytes;
    has_plus_one_ = config.norm_plus_one && !files.config().bool_or("kvasir_norms_have_one", false);
  }

  // Looks every tensor up before the first is packed, so that a wrong file is refused at once, not
  // after minutes.
  Result<DecoderWeights> load() {
    is_rehearsal_ = true;
    KVASIR_TRY_DO(load_all());
    KVASIR_TRY_DO(refuse_left_over());
    is_rehearsal_ = false;
    return load_all();
  }

 private:
  Result<DecoderWeights> load_all() {
    DecoderWeights out;
    KVASIR_TRY(out.embedding,
               matrix("model.embed_tokens.weight", config_.vocab, config_.hidden, exact_f32_));
    for (std::size_t i = 0; i < config_.layers.size(); ++i) {
      KVASIR_TRY(LayerWeights layer,
                 load_layer(config_.layers[i], "model.layers." + std::to_string(i) + "."));
      out.layers.push_back(std::move(layer));
    }
    KVASIR_TRY(out.norm, norm("model.norm", config_.hidden));
    if (!config_.tied_head) {
      KVASIR_TRY(out.own_head, matrix("lm_head.weight", config_.vocab, config_.hidden, exact_f32_));
    }
    return out;
  }

  Result<LayerWeights> load_layer(const LayerSpec& spec, const std::string& prefix) {
    LayerWeights out;
    const LayerNames& names = config_.names;
    KVASIR_TRY(out.attention_in, block_norm(prefix, names.attention_in));
    KVASIR_TRY(out.attention, load_attention(spec.attention, prefix + "self_attn."));
    KVASIR_TRY(out.attention_out, block_norm(prefix, names.attention_out));
    KVASIR_TRY(out.mlp_in, block_norm(prefix, names.mlp_in));
    if (spec.moe) {
      KVASIR_TRY(out.moe, load_moe(*spec.moe, prefix));
    } else {
      KVASIR_TRY(out.mlp, load_mlp(spec.mlp, prefix + "mlp."));
    }
    KVASIR_TRY(out.mlp_out, block_norm(prefix, names.mlp_out));
    return out;
  }

  Result<AttentionWeights> load_attention(const AttentionSpec& a, const std::string& prefix) {
    AttentionWeights out;
    if (a.fused_qkv) {
      KVASIR_TRY_DO(
          append(out.qkv, prefix + "qkv_proj", a.qkv_width(), config_.hidden, a.qkv_bias));
    } else {
      KVASIR_TRY_DO(append(out.qkv, prefix + "q_proj", a.q_width(), config_.hidden, a.qkv_bias));
      KVASIR_TRY_DO(append(out.qkv, prefix + "k_proj", a.kv_width(), config_.hidden, a.qkv_bias));
      KVASIR_TRY_DO(append(out.qkv, prefix + "v_proj", a.kv_width(), config_.hidden, a.qkv_bias));
    }
    if (a.qk_norm != QkNorm::none) {
      const bool per_head = a.qk_norm == QkNorm::per_head;
      KVASIR_TRY(out.q_norm, norm(prefix + "q_norm", per_head ? a.head_dim : a.q_width()));
      KVASIR_TRY(out.k_norm, norm(prefix + "k_norm", per_head ? a.head_dim : a.kv_width()));
    }
    KVASIR_TRY(out.out, linear(prefix + "o_proj", config_.hidden, a.q_width(), a.out_bias));
    return out;
  }

  Result<MlpWeights> load_mlp(const MlpSpec& mlp, const std::string& prefix) {
    MlpWeights out;
    if (mlp.fused_gate_up) {
      KVASIR_TRY_DO(append(out.gate_up, prefix + "gate_up_proj", 2 * mlp.intermediate,
                           config_.hidden, mlp.bias));
    } else {
      KVASIR_TRY_DO(
          append(out.gate_up, prefix + "gate_proj", mlp.intermediate, config_.hidden, mlp.bias));
      KVASIR_TRY_DO(
          append(out.gate_up, prefix + "up_proj", mlp.intermediate, config_.hidden, mlp.bias));
    }
    KVASIR_TRY(out.down, linear(prefix + "down_proj", config_.hidden, mlp.intermediate, mlp.bias));
    return out;
  }

  Result<MoeWeights> load_moe(const MoeSpec& moe, const std::string& prefix) {
    MoeWeights out;
    const LayerNames& names = config_.names;
    const std::string router = prefix + std::string(names.router);
    KVASIR_TRY(out.router.weight,
               matrix(router + ".weight", moe.n_experts, config_.hidden, /*exact_f32=*/true));
    if (moe.has_selection_bias) {
      KVASIR_TRY(out.selection_bias,
                 files_.vector(router + ".e_score_correction_bias", moe.n_experts));
    }
    out.bank.resize(moe.n_experts);
    KVASIR_TRY_DO(experts(out, prefix, names.expert_gate, &ops::ExpertWeights::gate,
                          moe.intermediate, config_.hidden));
    KVASIR_TRY_DO(experts(out, prefix, names.expert_up, &ops::ExpertWeights::up, moe.intermediate,
                          config_.hidden));
    KVASIR_TRY_DO(experts(out, prefix, names.expert_down, &ops::ExpertWeights::down, config_.hidden,
                          moe.intermediate));
    if (moe.shared_intermediate) {
      const MlpSpec shared{.intermediate = moe.shared_intermediate, .activation = moe.activation};
      KVASIR_TRY(out.shared, load_mlp(shared, prefix + std::string(names.shared_expert) + "."));
    }
    return out;
  }

  using ExpertPart = const ops::PackedMatrix* ops::ExpertWeights::*;
  Status experts(MoeWeights& moe,
                 const std::string& prefix,
                 std::string_view name,
                 ExpertPart part,
                 std::uint32_t n_out,
                 std::uint32_t n_in) {
    const auto n_experts = static_cast<std::uint32_t>(moe.bank.size());
    KVASIR_TRY(const auto stored,
               files_.stack(prefix + std::string(name) + ".weight", n_experts, n_out, n_in));
    for (std::size_t e = 0; e < stored.size(); ++e) {
      KVASIR_TRY(auto packed, pack(stored[e], exact_f32_));
      moe.bank[e].*part = packed.get();
      moe.matrices.push_back(std::move(packed));
    }
    return {};
  }

  Status append(SideBySide& parts,
                const std::string& name,
                std::uint32_t n_out,
                std::uint32_t n_in,
                bool has_bias) {
    KVASIR_TRY(Linear part, linear(name, n_out, n_in, has_bias));
    parts.push_back(std::move(part));
    return {};
  }

  Result<Linear> linear(const std::string& name,
                        std::uint32_t n_out,
                        std::uint32_t n_in,
                        bool has_bias) {
    Linear out;
    KVASIR_TRY(out.weight, matrix(name + ".weight", n_out, n_in, exact_f32_));
    if (has_bias) {
      KVASIR_TRY(out.bias, files_.vector(name + ".bias", n_out));
    }
    return out;
  }

  Result<std::unique_ptr<ops::PackedMatrix>> matrix(const std::string& name,
                                                    std::uint32_t n_out,
                                                    std::uint32_t n_in,
                                                    bool exact_f32) {
    KVASIR_TRY(const codec::WeightMatrix stored, files_.matrix(name, n_out, n_in));
    return pack(stored, exact_f32);
  }

  Result<std::unique_ptr<ops::PackedMatrix>> pack(const codec::WeightMatrix& stored,
                                                  bool exact_f32) {
    if (is_rehearsal_) return std::unique_ptr<ops::PackedMatrix>();
    KVASIR_TRY(auto packed, device_.pack(stored, {.exact_f32 = exact_f32}));
    files_.release_pages(stored);
    const std::size_t planes = (stored.planes.scales ? 1u : 0u) + (stored.planes.biases ? 1u : 0u);
    done_bytes_ += stored.n_out * (stored.codes_stride + planes * stored.scales_stride);
    if (progress_)
      progress_({.stage = "repacking weights",
                 .done = std::min(done_bytes_, total_bytes_),
                 .total = total_bytes_});
    return packed;
  }

  Result<Vector> block_norm(const std::string& prefix, std::string_view name) {
    return name.empty() ? Result<Vector>(Vector{})
                        : norm(prefix + std::string(name), config_.hidden);
  }

  Result<Vector> norm(const std::string& name, std::uint32_t n) {
    KVASIR_TRY(Vector out, files_.vector(name + ".weight", n));
    if (has_plus_one_) {
      for (float& w : out) w += 1.0f;
    }
    return out;
  }

  Status refuse_left_over() const {
    for (const std::string& name : files_.unused()) {
      if (name.starts_with("rope_f")) continue;  // GGUF: already in the configuration
      if (name == "lm_head.weight" && config_.tied_head) continue;  // a copy of the embedding
      if (is_draft_layer(name)) continue;
      return invalid(files_.path().string() + ": tensor '" + name + "' is not part of this model");
    }
    return {};
  }

  // "model.layers.46.…" where 46 layers are followed by prediction heads that we leave unread
  // (MOD-63).
  bool is_draft_layer(std::string_view name) const {
    constexpr std::string_view kLayers = "model.layers.";
    if (!name.starts_with(kLayers)) return false;
    std::size_t layer = 0;
    const auto [end, error] =
        std::from_chars(name.data() + kLayers.size(), name.data() + name.size(), layer);
    const std::size_t n = config_.layers.size();
    return error == std::errc() && end != name.data() + name.size() && layer >= n &&
           layer < n + config_.n_draft_layers;
  }

  const formats::ModelFiles& files_;
  const DecoderConfig& config_;
  ops::Device& device_;
  bool exact_f32_;
  const ProgressSink& progress_;
  bool has_plus_one_ = false;
  bool is_rehearsal_ = false;
  std::uint64_t done_bytes_ = 0, total_bytes_ = 0;
};

std::uint64_t size_bytes(const Vector& v) { return v.size() * sizeof(float); }
std::uint64_t size_bytes(const Linear& l) {
  return (l.weight ? l.weight->size_bytes() : 0) + size_bytes(l.bias);
}
std::uint64_t size_bytes(const SideBySide& parts) {
  std::uint64_t out = 0;
  for (const Linear& part : parts) out += size_bytes(part);
  return out;
}
std::uint64_t size_bytes(const MlpWeights& m) { return size_bytes(m.gate_up) + size_bytes(m.down); }
std::uint64_t size_bytes(const MoeWeights& m) {
  std::uint64_t out =
      size_bytes(m.router) + size_bytes(m.selection_bias) + (m.shared ? size_bytes(*m.shared) : 0);
  for (const auto& matrix : m.matrices) out += matrix->size_bytes();
  return out;
}

}  // namespace

Result<DecoderWeights> load_weights(const formats::ModelFiles& files,
                                    const DecoderConfig& config,
                                    ops::Device& device,
                                    bool exact_f32,
                                    const ProgressSink& progress) {
  return WeightLoader(files, config, device, exact_f32, progress).load();
}

bool stores_only_f32(const formats::ModelFiles& files) {
  const auto& tensors = files.tensors();
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const auto& t) { return t.shape.size() < 2 || t.type == "f32"; });
}

std::uint64_t size_bytes(const DecoderWeights& weights) {
  std::uint64_t out = weights.embedding->size_bytes() + size_bytes(weights.norm);
  if (weights.own_head) out += weights.own_head->size_bytes();
  for (const LayerWeights& l : weights.layers) {
    out += size_bytes(l.attention_in) + size_bytes(l.attention_out) + size_bytes(l.mlp_in) +
           size_bytes(l.mlp_out);
    out += size_bytes(l.attention.qkv) + size_bytes(l.attention.q_norm) +
           size_bytes(l.attention.k_norm) + size_bytes(l.attention.out);
    if (l.mlp) out += size_bytes(*l.mlp);
    if (l.moe) out += size_bytes(*l.moe);
  }
  return out;
}

}  // namespace kvasir::model
