#include "model/families.h"

#include <algorithm>

#include "formats/pooling.h"
#include "model/detail/config_reader.h"

namespace kvasir::model {
namespace {

std::string supported_model_types() {
  std::string out;
  for (const ModelFamily& family : kFamilies)
    out.append(out.empty() ? "" : ", ").append(family.model_type);
  return out;
}

const ModelFamily* family_where(std::string_view ModelFamily::*member, std::string_view value) {
  const auto* found = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                   [&](const ModelFamily& f) { return f.*member == value; });
  return found == std::end(kFamilies) ? nullptr : found;
}

std::string first_architecture(const json::Value& config) {
  const json::Value* list = config.find("architectures");
  const json::Array* names = list ? list->as_array() : nullptr;
  const std::string* name = names && !names->empty() ? names->front().as_string() : nullptr;
  return name ? *name : std::string();
}

constexpr std::string_view kGenerator = "ForCausalLM", kTrunk = "Model";

// "Qwen3Model" → "Qwen3ForCausalLM": the same graph without a head (MOD-17).
std::string generator_of_trunk(std::string_view architecture) {
  if (!architecture.ends_with(kTrunk)) return {};
  architecture.remove_suffix(kTrunk.size());
  return std::string(architecture).append(kGenerator);
}

// Its outputs are hidden rows: a trunk, or a folder that says how such rows are pooled (MOD-61).
Result<bool> is_embedding_model(const formats::ModelFiles& files) {
  if (first_architecture(files.config()).ends_with(kTrunk)) return true;
  KVASIR_TRY(const auto pooling, formats::find_pooling(files));
  return pooling.has_value();
}

// Wrappers (vision) and remaps carry an architecture of their own around a known text model; a
// classifier of a known type has no head to generate with.
bool generates(std::string_view architecture) {
  return architecture.empty() || architecture.ends_with("ForCausalLM") ||
         architecture.ends_with("ForConditionalGeneration");
}

}  // namespace

Result<const ModelFamily*> find_family(const json::Value& config) {
  const std::string architecture = first_architecture(config);
  if (const ModelFamily* family = family_where(&ModelFamily::architecture, architecture))
    return family;
  if (const ModelFamily* family =
          family_where(&ModelFamily::architecture, generator_of_trunk(architecture)))
    return family;
  const std::string model_type = config.string_or("model_type", "");
  const ModelFamily* family = family_where(&ModelFamily::model_type, model_type);
  if (family && generates(architecture)) return family;
  const std::string& name = family || model_type.empty() ? architecture : model_type;
  return unsupported("unsupported model type '" + name +
                     "'; supported: " + supported_model_types());
}

Result<DecoderConfig> describe_model(const formats::ModelFiles& files, std::uint32_t max_context) {
  KVASIR_TRY(const ModelFamily* family, find_family(files.config()));
  const ConfigReader config(files, max_context);
  DecoderConfig decoder = family->describe(config);
  if (!config.status()) {
    return Error{config.status().error().code,
                 files.path().string() + ": " + config.status().error().what};
  }
  if (max_context > decoder.max_positions) {
    return invalid("a context of " + std::to_string(max_context) +
                   " tokens is more than the model's " + std::to_string(decoder.max_positions));
  }
  if (max_context) decoder.max_positions = max_context;
  decoder.family = family->name;
  KVASIR_TRY(const bool is_embedding, is_embedding_model(files));
  decoder.has_head = !is_embedding && !decoder.encoder;
  if (is_embedding && !decoder.encoder && !files.config().bool_or("is_causal", true))
    return unsupported(files.path().string() + ": config: 'is_causal' must be true in a decoder");
  return decoder;
}

bool has_sparse_index(const DecoderConfig& config) noexcept {
  return std::any_of(config.layers.begin(), config.layers.end(),
                     [](const LayerSpec& layer) { return layer.latent && layer.latent->index; });
}

KvList kv_list_of(const DecoderConfig& config) {
  KvList out;
  if (config.encoder) return out;
  for (const LayerSpec& layer : config.layers) {
    if (layer.attention.donor) continue;
    if (const auto& latent = layer.latent) {
      out.push_back({.latent = {.rank = latent->kv_rank,
                                .rope_dim = latent->rope_dim,
                                .index_dim = latent->has_own_index() ? latent->index->dim : 0}});
      continue;
    }
    if (const auto& d = layer.delta) {
      out.push_back({.recurrent = {.conv_kernel = d->conv_kernel,
                                   .n_channels = d->conv_width(),
                                   .n_value_heads = d->n_value_heads,
                                   .value_dim = d->value_dim,
                                   .key_dim = d->key_dim}});
      continue;
    }
    if (const auto& c = layer.short_conv) {
      out.push_back({.recurrent = {.conv_kernel = c->kernel, .n_channels = c->width}});
      continue;
    }
    out.push_back({.n_kv_heads = layer.attention.n_kv_heads,
                   .head_dim = layer.attention.head_dim,
                   .window = layer.attention.window});
  }
  return out;
}

std::vector<std::uint32_t> kv_entries_of(const DecoderConfig& config) {
  std::vector<std::uint32_t> out;
  if (config.encoder) return out;
  std::uint32_t n_owned = 0;
  for (const LayerSpec& layer : config.layers)
    out.push_back(layer.attention.donor ? out[*layer.attention.donor] : n_owned++);
  return out;
}

}  // namespace kvasir::model
