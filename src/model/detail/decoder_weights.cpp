#include "model/detail/decoder_weights.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "model/detail/weight_source.h"

namespace kvasir::model {
namespace {

class WeightLoader {
 public:
  explicit WeightLoader(WeightSource& source) : source_(source), config_(source.config()) {}

  // Looks every tensor up before the first is packed, so that a wrong file is refused at once, not
  // after minutes.
  Result<DecoderWeights> load() {
    KVASIR_TRY_DO(rehearse());
    return load_all();
  }
  Status rehearse() {
    source_.rehearse(true);
    KVASIR_TRY_DO(load_all());
    KVASIR_TRY_DO(refuse_left_over());
    source_.rehearse(false);
    return {};
  }

 private:
  Result<DecoderWeights> load_all() {
    DecoderWeights out;
    KVASIR_TRY(out.embedding, table("model.embed_tokens.weight"));
    if (config_.per_layer_input) {
      KVASIR_TRY(out.per_layer_inputs, load_per_layer_inputs());
    }
    for (std::size_t i = 0; i < config_.layers.size(); ++i) {
      KVASIR_TRY(LayerWeights layer,
                 load_layer(config_.layers[i], "model.layers." + std::to_string(i) + "."));
      out.layers.push_back(std::move(layer));
    }
    KVASIR_TRY(out.norm, source_.norm("model.", config_.names.final_norm));
    if (config_.has_head && !config_.tied_head) {
      KVASIR_TRY(out.own_head, table("lm_head.weight", /*may_split=*/true));
    }
    return out;
  }

  Result<std::unique_ptr<ops::PackedMatrix>> table(const std::string& name,
                                                   bool may_split = false) {
    return source_.matrix(name, config_.vocab, config_.hidden, source_.exact_f32(), may_split);
  }

  Result<PerLayerInputWeights> load_per_layer_inputs() {
    PerLayerInputWeights out;
    const std::uint32_t n = config_.per_layer_inputs_width();
    KVASIR_TRY(out.table, source_.matrix("model.embed_tokens_per_layer.weight", config_.vocab, n,
                                         source_.exact_f32()));
    KVASIR_TRY(out.projection, source_.linear("model.per_layer_model_projection", n, config_.hidden,
                                              /*has_bias=*/false));
    KVASIR_TRY(out.norm,
               source_.rms_weight("model.per_layer_projection_norm", config_.per_layer_input));
    return out;
  }

  Result<LayerWeights> load_layer(const LayerSpec& spec, const std::string& prefix) {
    LayerWeights out;
    const LayerNames& names = config_.names;
    KVASIR_TRY(out.attention_in, source_.norm(prefix, names.attention_in));
    if (spec.latent) {
      KVASIR_TRY(out.latent, load_latent(source_, *spec.latent, prefix + "self_attn."));
    } else if (spec.delta) {
      KVASIR_TRY(out.delta, load_delta(source_, *spec.delta, prefix + "linear_attn."));
    } else if (spec.short_conv) {
      KVASIR_TRY(out.short_conv, load_short_conv(source_, *spec.short_conv, prefix + "conv."));
    } else {
      KVASIR_TRY(out.attention, load_attention(spec.attention, prefix + "self_attn."));
    }
    KVASIR_TRY(out.attention_out, source_.norm(prefix, names.attention_out));
    KVASIR_TRY(out.mlp_in, source_.norm(prefix, names.mlp_in));
    if (spec.has_mlp()) {
      KVASIR_TRY(out.mlp, load_mlp(source_, spec.mlp, prefix + std::string(names.mlp) + "."));
    }
    if (spec.moe) {
      KVASIR_TRY(out.moe, load_moe(source_, *spec.moe, prefix));
    }
    if (spec.moe && spec.moe->beside_mlp) {
      KVASIR_TRY(out.mlp_branch_out, source_.norm(prefix, names.mlp_branch_out));
      KVASIR_TRY(out.experts_in, source_.norm(prefix, names.experts_in));
      KVASIR_TRY(out.experts_out, source_.norm(prefix, names.experts_out));
    }
    KVASIR_TRY(out.mlp_out, source_.norm(prefix, names.mlp_out));
    if (config_.per_layer_input) {
      KVASIR_TRY(out.per_layer, load_per_layer(prefix));
    }
    if (config_.layer_scalar) {
      KVASIR_TRY(const std::vector<float> scalar, source_.numbers(prefix + "layer_scalar", 1));
      out.scalar = scalar[0];
    }
    return out;
  }

  Result<PerLayerWeights> load_per_layer(const std::string& prefix) {
    PerLayerWeights out;
    KVASIR_TRY(out.gate, source_.linear(prefix + "per_layer_input_gate", config_.per_layer_input,
                                        config_.hidden, /*has_bias=*/false));
    KVASIR_TRY(out.out, source_.linear(prefix + "per_layer_projection", config_.hidden,
                                       config_.per_layer_input, /*has_bias=*/false));
    KVASIR_TRY(out.norm, source_.norm(prefix, "post_per_layer_input_norm"));
    return out;
  }

  Result<AttentionWeights> load_attention(const AttentionSpec& a, const std::string& prefix) {
    AttentionWeights out;
    const std::uint32_t hidden = config_.hidden;
    if (a.fused_qkv) {
      KVASIR_TRY_DO(
          source_.append(out.qkv, prefix + "qkv_proj", a.qkv_width(), hidden, a.qkv_bias));
    } else {
      KVASIR_TRY_DO(append_queries(out.qkv, a, prefix + "q_proj"));
      if (!a.donor)
        KVASIR_TRY_DO(source_.append(out.qkv, prefix + "k_proj", a.kv_width(), hidden, a.qkv_bias));
      if (!a.donor && !a.v_is_k)
        KVASIR_TRY_DO(source_.append(out.qkv, prefix + "v_proj", a.kv_width(), hidden, a.qkv_bias));
    }
    if (a.qk_norm != QkNorm::none) {
      const bool per_head = a.qk_norm == QkNorm::per_head;
      KVASIR_TRY(out.q_norm, source_.rms_weight(prefix + std::string(config_.names.q_norm),
                                                per_head ? a.head_dim : a.q_width()));
      if (!a.donor) {
        KVASIR_TRY(out.k_norm, source_.rms_weight(prefix + std::string(config_.names.k_norm),
                                                  per_head ? a.head_dim : a.kv_width()));
      }
    }
    if (a.sinks) {
      KVASIR_TRY(out.sinks, source_.vector(prefix + "sinks", a.n_heads));
    }
    KVASIR_TRY(out.out, source_.linear(prefix + std::string(config_.names.attention_project),
                                       hidden, a.q_width(), a.out_bias));
    return out;
  }

  // With output gates, rows of query and gate alternate head by head: all queries, then all gates.
  Status append_queries(SideBySide& parts, const AttentionSpec& a, const std::string& name) {
    if (!a.output_gate) return source_.append(parts, name, a.q_width(), config_.hidden, a.qkv_bias);
    std::vector<RowRun> runs;
    for (const std::uint32_t first : {0u, a.head_dim}) {
      for (std::uint32_t head = 0; head < a.n_heads; ++head)
        runs.push_back({2 * head * a.head_dim + first, a.head_dim});
    }
    return source_.append_runs(parts, name, config_.hidden, a.qkv_bias, runs);
  }

  Status refuse_left_over() const {
    for (const std::string& name : source_.files().unused()) {
      if (name.starts_with("rope_f")) continue;  // GGUF: already in the configuration
      // A copy of the embedding, or of no use.
      if (name == "lm_head.weight" && (config_.tied_head || !config_.has_head)) continue;
      if (is_draft_layer(name) || is_key_or_value_of_borrower(name)) continue;
      return invalid(source_.files().path().string() + ": tensor '" + name +
                     "' is not part of this model");
    }
    return {};
  }

  // "model.layers.46.…" → 46 and what follows the number.
  struct LayerTensor {
    std::size_t layer = 0;
    std::string_view rest;  // ".self_attn.…"; empty: not a layer's tensor
  };
  static LayerTensor layer_tensor(std::string_view name) {
    constexpr std::string_view kLayers = "model.layers.";
    if (!name.starts_with(kLayers)) return {};
    const char* const last = name.data() + name.size();
    LayerTensor out;
    const auto [end, error] = std::from_chars(name.data() + kLayers.size(), last, out.layer);
    if (error == std::errc()) out.rest = {end, static_cast<std::size_t>(last - end)};
    return out;
  }

  // Of prediction heads behind the last layer that we leave unread (MOD-63).
  bool is_draft_layer(std::string_view name) const {
    const LayerTensor t = layer_tensor(name);
    const std::size_t n = config_.layers.size();
    return !t.rest.empty() && t.layer >= n && t.layer < n + config_.n_draft_layers;
  }

  // Published files keep what a borrowing layer would project, were it not borrowing.
  bool is_key_or_value_of_borrower(std::string_view name) const {
    const LayerTensor t = layer_tensor(name);
    if (t.rest.empty() || t.layer >= config_.layers.size()) return false;
    return config_.layers[t.layer].attention.donor &&
           (t.rest.starts_with(".self_attn.k_") || t.rest.starts_with(".self_attn.v_"));
  }

  WeightSource& source_;
  const DecoderConfig& config_;
};

std::uint64_t size_bytes(const Vector& v) { return v.size() * sizeof(float); }
std::uint64_t size_bytes(const Norm& n) { return size_bytes(n.weight) + size_bytes(n.bias); }
std::uint64_t size_bytes(const Linear& l) {
  return (l.weight ? l.weight->size_bytes() : 0) + size_bytes(l.bias);
}
std::uint64_t size_bytes(const SideBySide& parts) {
  std::uint64_t out = 0;
  for (const Linear& part : parts) out += size_bytes(part);
  return out;
}
std::uint64_t size_bytes(const MlpWeights& m) {
  return size_bytes(m.gate_up) + size_bytes(m.down) + size_bytes(m.ones);
}
std::uint64_t size_bytes(const MoeWeights& m) {
  std::uint64_t out = size_bytes(m.router) + size_bytes(m.selection_bias) +
                      size_bytes(m.router_scale) + size_bytes(m.expert_scales) +
                      (m.shared ? size_bytes(*m.shared) : 0) +
                      (m.shared_gate ? size_bytes(*m.shared_gate) : 0);
  for (const auto& matrix : m.matrices) out += matrix->size_bytes();
  for (const Vector& biases : m.expert_biases) out += size_bytes(biases);
  return out;
}
std::uint64_t size_bytes(const AttentionWeights& a) {
  return size_bytes(a.qkv) + size_bytes(a.q_norm) + size_bytes(a.k_norm) + size_bytes(a.sinks) +
         size_bytes(a.out);
}
std::uint64_t size_bytes(const DeltaWeights& d) {
  return size_bytes(d.in) + size_bytes(d.conv) + size_bytes(d.a_log) + size_bytes(d.dt_bias) +
         size_bytes(d.norm) + size_bytes(d.out);
}
std::uint64_t size_bytes(const ShortConvWeights& c) {
  return size_bytes(c.in) + size_bytes(c.conv) + size_bytes(c.conv_bias) + size_bytes(c.out);
}
std::uint64_t size_bytes(const PerLayerWeights& p) {
  return size_bytes(p.gate) + size_bytes(p.out) + size_bytes(p.norm);
}
std::uint64_t size_bytes(const PerLayerInputWeights& p) {
  return p.table->size_bytes() + size_bytes(p.projection) + size_bytes(p.norm);
}
std::uint64_t size_bytes(const EncoderInputWeights& e) {
  return (e.positions ? e.positions->size_bytes() : 0) + size_bytes(e.token_type) +
         size_bytes(e.norm);
}
std::uint64_t size_bytes(const LayerWeights& l) {
  std::uint64_t out = size_bytes(l.attention);
  for (const Norm* norm : {&l.attention_in, &l.attention_out, &l.mlp_in, &l.mlp_out,
                           &l.mlp_branch_out, &l.experts_in, &l.experts_out})
    out += size_bytes(*norm);
  if (l.latent) out += size_bytes(*l.latent);
  if (l.delta) out += size_bytes(*l.delta);
  if (l.short_conv) out += size_bytes(*l.short_conv);
  if (l.mlp) out += size_bytes(*l.mlp);
  if (l.moe) out += size_bytes(*l.moe);
  if (l.per_layer) out += size_bytes(*l.per_layer);
  return out;
}

}  // namespace

Result<Vector> Vector::make(ops::Device& device, std::span<const float> values) {
  Vector out;
  if (values.empty()) return out;
  KVASIR_TRY(out.memory_, device.allocate(values.size_bytes()));
  device.copy(out.memory_.data(), std::as_bytes(values).data(), values.size_bytes());
  // The values may go when this returns.
  KVASIR_TRY_DO(device.synchronize());
  return out;
}

Result<DecoderWeights> load_weights(const formats::ModelFiles& files,
                                    const DecoderConfig& config,
                                    ops::Device& device,
                                    bool exact_f32,
                                    const ProgressSink& progress) {
  WeightSource source(files, config, &device, exact_f32, progress);
  if (config.encoder) return load_encoder(source);
  return WeightLoader(source).load();
}

Status rehearse_weights(const formats::ModelFiles& files, const DecoderConfig& config) {
  const ProgressSink nobody;
  WeightSource source(files, config, /*device=*/nullptr, /*exact_f32=*/false, nobody);
  return config.encoder ? rehearse_encoder(source) : WeightLoader(source).rehearse();
}

bool stores_only_f32(const formats::ModelFiles& files) {
  const auto& tensors = files.tensors();
  // Integers are no weights: BERT files keep position_ids.
  return std::all_of(tensors.begin(), tensors.end(), [](const auto& t) {
    return t.shape.size() < 2 || t.type == "f32" || t.type == "i64";
  });
}

std::uint64_t size_bytes(const DecoderWeights& weights) {
  std::uint64_t out = weights.embedding->size_bytes() + size_bytes(weights.norm);
  if (weights.own_head) out += weights.own_head->size_bytes();
  if (weights.per_layer_inputs) out += size_bytes(*weights.per_layer_inputs);
  if (weights.encoder_input) out += size_bytes(*weights.encoder_input);
  for (const LayerWeights& layer : weights.layers) out += size_bytes(layer);
  return out;
}

}  // namespace kvasir::model
