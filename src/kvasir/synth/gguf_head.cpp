#include "kvasir/synth/gguf_head.h"

#include <cmath>
#include <utility>

namespace kvasir::synth {
namespace {

// Families whose graph is llama.cpp's of that name, whatever their config.json says.
constexpr std::pair<std::string_view, std::string_view> kArchitectures[] = {
    {"llama", "llama"}, {"mistral", "llama"}, {"qwen2", "qwen2"}, {"qwen3", "qwen3"}};

// general.file_type, which names what most tensors are.
std::uint32_t file_type_of(codec::WeightType matrices) {
  constexpr std::pair<std::string_view, std::uint32_t> kTypes[] = {
      {"f32", 0}, {"f16", 1}, {"q4_0", 2}, {"q4_1", 3}, {"q8_0", 7}, {"bf16", 32}};
  for (const auto& [name, number] : kTypes) {
    if (name == codec::info(matrices).name) return number;
  }
  return 0;
}

double rope_theta(const json::Value& config) {
  const json::Value* rope = config.find("rope_parameters");
  return config.number_or("rope_theta", rope ? rope->number_or("rope_theta", 1e4) : 1e4);
}

void add_vocabulary(const Vocabulary& vocabulary, formats::GgufMetadata& out) {
  constexpr std::int32_t kNormal = 1, kControl = 3;
  std::vector<std::int32_t> types(vocabulary.tokens.size(), kNormal);
  for (const Special& special : vocabulary.specials) types[special.id] = kControl;
  out.text("tokenizer.ggml.model", "gpt2")
      .text("tokenizer.ggml.pre", "gpt-2")
      .texts("tokenizer.ggml.tokens", vocabulary.tokens)
      .wholes("tokenizer.ggml.token_type", types)
      .texts("tokenizer.ggml.merges", vocabulary.merges)
      .flag("tokenizer.ggml.add_bos_token", false)
      .text("tokenizer.chat_template", vocabulary.chat_template);
  std::string last_role;
  for (const Special& special : vocabulary.specials) {
    if (special.role == last_role) continue;  // the first of a role
    last_role = special.role;
    const std::string key = special.role == "pad" ? "padding" : special.role;
    out.whole("tokenizer.ggml." + key + "_token_id", special.id);
  }
}

}  // namespace

Result<std::string> gguf_architecture_of(const json::Value& config) {
  const std::string type = config.string_or("model_type", "");
  std::string known;
  for (const auto& [model_type, architecture] : kArchitectures) {
    if (model_type == type) return std::string(architecture);
    known.append(known.empty() ? "" : ", ").append(model_type);
  }
  return unsupported("a .gguf of model type '" + type + "'; supported: " + known +
                     " (a folder can hold any)");
}

formats::GgufMetadata gguf_metadata(const std::string& architecture,
                                    const std::string& name,
                                    codec::WeightType matrices,
                                    const json::Value& config,
                                    const model::DecoderConfig& decoder,
                                    const std::optional<Vocabulary>& vocabulary) {
  const std::string prefix = architecture + ".";
  const model::AttentionSpec& attention = decoder.layers.front().attention;
  formats::GgufMetadata out;
  out.text("general.architecture", architecture)
      .text("general.name", name + ", random weights")
      .whole("general.file_type", file_type_of(matrices))
      .whole("general.quantization_version", 2)
      .flag(formats::kGgufRandomWeights, true)
      .whole(prefix + "block_count", static_cast<std::uint32_t>(decoder.layers.size()))
      .whole(prefix + "context_length", decoder.max_positions)
      .whole(prefix + "embedding_length", decoder.hidden)
      .whole(prefix + "feed_forward_length", decoder.layers.front().mlp.intermediate)
      .whole(prefix + "attention.head_count", attention.n_heads)
      .whole(prefix + "attention.head_count_kv", attention.n_kv_heads)
      .whole(prefix + "attention.key_length", attention.head_dim)
      .whole(prefix + "attention.value_length", attention.head_dim)
      .whole(prefix + "rope.dimension_count", attention.head_dim)
      .whole(prefix + "vocab_size", decoder.vocab)
      .real(prefix + "attention.layer_norm_rms_epsilon", decoder.norm_eps)
      .real(prefix + "rope.freq_base", static_cast<float>(rope_theta(config)));
  if (vocabulary) add_vocabulary(*vocabulary, out);
  return out;
}

std::vector<float> rope_divisors(const json::Value& config, const model::DecoderConfig& decoder) {
  if (decoder.ropes.empty()) return {};
  const std::vector<double>& frequencies = decoder.ropes.front().inverse_frequencies;
  const double theta = rope_theta(config), n = static_cast<double>(frequencies.size());
  std::vector<float> out;
  bool is_scaled = false;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double plain = std::pow(theta, -static_cast<double>(i) / n);
    out.push_back(static_cast<float>(plain / frequencies[i]));
    is_scaled |= std::fabs(out.back() - 1.0f) > 1e-6f;
  }
  return is_scaled ? out : std::vector<float>();
}

Result<std::vector<formats::NewTensor>> gguf_tensors_of(const std::string& architecture,
                                                        const std::vector<Piece>& pieces) {
  std::vector<formats::NewTensor> out;
  for (const Piece& piece : pieces) {
    const auto name = formats::gguf_tensor_name(architecture, piece.wanted.name);
    if (!name)
      return unsupported("llama.cpp's " + architecture + " has no tensor for '" +
                         piece.wanted.name + "'");
    out.push_back({.name = *name,
                   .ggml_type = static_cast<std::uint32_t>(codec::info(piece.type).gguf_type),
                   .shape = piece.wanted.shape,
                   .size_bytes = piece.n_rows * piece.row_bytes()});
  }
  return out;
}

}  // namespace kvasir::synth
