// The weights of an encoder, whose tensors have names of their own (MOD-37, MOD-38).
#include "model/detail/weight_source.h"

namespace kvasir::model {
namespace {

class EncoderLoader {
 public:
  explicit EncoderLoader(WeightSource& source)
      : source_(source), config_(source.config()), names_(*config_.encoder) {}

  // As a decoder's: everything is looked up before the first tensor is packed.
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
    KVASIR_TRY(out.embedding, table(names_.tokens, config_.vocab));
    KVASIR_TRY(out.encoder_input, load_input());
    for (std::size_t i = 0; i < config_.layers.size(); ++i) {
      KVASIR_TRY(LayerWeights layer, load_layer(i));
      out.layers.push_back(std::move(layer));
    }
    KVASIR_TRY(out.norm, source_.norm("", names_.final_norm));
    return out;
  }

  Result<std::unique_ptr<ops::PackedMatrix>> table(std::string_view name, std::uint32_t n_rows) {
    return source_.matrix(std::string(name) + ".weight", n_rows, config_.hidden,
                          source_.exact_f32());
  }

  Result<EncoderInputWeights> load_input() {
    EncoderInputWeights out;
    if (names_.n_positions) {
      KVASIR_TRY(out.positions, table(names_.positions, names_.n_positions));
    }
    if (names_.n_token_types) {
      KVASIR_TRY(const std::vector<float> types,
                 source_.numbers(std::string(names_.token_types) + ".weight",
                                 std::size_t{names_.n_token_types} * config_.hidden));
      // Every token is of the first type.
      KVASIR_TRY(out.token_type, source_.settle(std::span(types).first(config_.hidden)));
    }
    KVASIR_TRY(out.norm, source_.norm("", names_.input_norm));
    return out;
  }

  Result<LayerWeights> load_layer(std::size_t i) {
    LayerWeights out;
    const LayerSpec& spec = config_.layers[i];
    const std::string prefix = std::string(names_.layer_root) + std::to_string(i) + ".";
    const auto name = [&](std::string_view module) { return prefix + std::string(module); };
    KVASIR_TRY(out.attention, load_attention(spec.attention, prefix));
    out.mlp.emplace();
    const MlpSpec& mlp = spec.mlp;
    const std::uint32_t up_width = (mlp.is_gated ? 2 : 1) * mlp.intermediate;
    KVASIR_TRY_DO(
        source_.append(out.mlp->gate_up, name(names_.mlp_up), up_width, config_.hidden, mlp.bias));
    KVASIR_TRY(out.mlp->down,
               source_.linear(name(names_.mlp_down), config_.hidden, mlp.intermediate, mlp.bias));
    if (!mlp.is_gated) {
      KVASIR_TRY(out.mlp->ones, source_.settle(std::vector<float>(mlp.intermediate, 1.0f)));
    }
    // An encoder that norms its embeddings has no norm of its own before the first attention
    // (MOD-38).
    const bool has_attention_norm = i > 0 || names_.norms_residual;
    Norm& attention_norm = names_.norms_residual ? out.attention_out : out.attention_in;
    Norm& mlp_norm = names_.norms_residual ? out.mlp_out : out.mlp_in;
    if (has_attention_norm) {
      KVASIR_TRY(attention_norm, source_.norm(prefix, names_.attention_norm));
    }
    KVASIR_TRY(mlp_norm, source_.norm(prefix, names_.mlp_norm));
    return out;
  }

  Result<AttentionWeights> load_attention(const AttentionSpec& a, const std::string& prefix) {
    AttentionWeights out;
    const auto append = [&](std::string_view module, std::uint32_t n_out) {
      return source_.append(out.qkv, prefix + std::string(module), n_out, config_.hidden,
                            a.qkv_bias);
    };
    if (a.fused_qkv) {
      KVASIR_TRY_DO(append(names_.qkv, a.qkv_width()));
    } else {
      KVASIR_TRY_DO(append(names_.q, a.q_width()));
      KVASIR_TRY_DO(append(names_.k, a.kv_width()));
      KVASIR_TRY_DO(append(names_.v, a.kv_width()));
    }
    KVASIR_TRY(out.out, source_.linear(prefix + std::string(names_.attention_out), config_.hidden,
                                       a.q_width(), a.out_bias));
    return out;
  }

  Status refuse_left_over() const {
    for (const std::string& name : source_.files().unused()) {
      if (name.starts_with("pooler.")) continue;  // for classifiers
      return invalid(source_.files().path().string() + ": tensor '" + name +
                     "' is not part of this model");
    }
    return {};
  }

  WeightSource& source_;
  const DecoderConfig& config_;
  const EncoderSpec& names_;
};

}  // namespace

Result<DecoderWeights> load_encoder(WeightSource& source) { return EncoderLoader(source).load(); }
Status rehearse_encoder(WeightSource& source) { return EncoderLoader(source).rehearse(); }

}  // namespace kvasir::model
