#include "formats/inspect.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <initializer_list>

#include "codec/weight_type.h"

namespace kvasir::formats {
namespace {

std::uint64_t first_of(const json::Value& config, std::initializer_list<std::string_view> members) {
  for (const std::string_view member : members) {
    if (const std::int64_t n = config.int_or(member, 0); n > 0)
      return static_cast<std::uint64_t>(n);
  }
  return 0;
}

std::uint64_t elements_of(const TensorInfo& tensor) {
  std::uint64_t n = 1;
  for (const std::uint64_t dim : tensor.shape) n *= dim;
  return n;
}

// By the codec, less than 16 bits an element; types without one are quantized as a rule.
bool is_quantized(std::string_view type) {
  if (const auto known = codec::find_weight_type(type))
    return codec::info(*known).block_bytes < 2 * codec::info(*known).block;
  return type.starts_with("q") || type.starts_with("iq") || type.starts_with("tq") ||
         type.starts_with("affine") || type.find("fp4") != std::string_view::npos;
}

void add_totals(ModelDescription& out) {
  for (const TensorInfo& tensor : out.tensors) {
    auto total = std::find_if(out.types.begin(), out.types.end(),
                              [&](const TypeTotal& t) { return t.type == tensor.type; });
    if (total == out.types.end()) total = out.types.insert(out.types.end(), TypeTotal{tensor.type});
    total->n_tensors += 1;
    total->n_parameters += elements_of(tensor);
    total->size_bytes += tensor.size_bytes;
    out.n_parameters += elements_of(tensor);
    out.size_bytes += tensor.size_bytes;
  }
  std::stable_sort(out.types.begin(), out.types.end(), [](const TypeTotal& a, const TypeTotal& b) {
    return a.size_bytes > b.size_bytes;
  });
  const auto main_type = std::find_if(out.types.begin(), out.types.end(),
                                      [](const TypeTotal& t) { return is_quantized(t.type); });
  out.quantization = main_type == out.types.end() ? "none" : main_type->type;
}

// "1.23 G": three digits with a prefix of the given base.
std::string short_number(std::uint64_t n, double base, std::initializer_list<const char*> units) {
  double value = static_cast<double>(n);
  const char* unit = "";
  for (const char* const next : units) {
    if (value < base) break;
    value /= base;
    unit = next;
  }
  std::array<char, 48> out = {};
  std::snprintf(out.data(), out.size(), *unit && value < 100 ? "%.2f %s" : "%.0f %s", value, unit);
  std::string text = out.data();
  while (text.ends_with(' ')) text.pop_back();
  return text;
}

std::string bytes_text(std::uint64_t n) {
  const std::string text = short_number(n, 1024, {"KiB", "MiB", "GiB", "TiB"});
  return text.ends_with('B') ? text : text + " B";
}
std::string count_text(std::uint64_t n) { return short_number(n, 1000, {"K", "M", "G", "T"}); }

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string out;
  for (const std::uint64_t dim : shape)
    out.append(out.empty() ? "" : " x ").append(std::to_string(dim));
  return out.empty() ? "scalar" : out;
}

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

std::string heads_text(const ModelDescription& d) {
  const std::string of = ", of " + std::to_string(d.head_dim);
  if (d.latent_rank == 0)
    return std::to_string(d.n_heads) + ", " + std::to_string(d.n_kv_heads) +
           " for keys and values" + of;
  return std::to_string(d.n_heads) + of + ", on one latent row of " +
         std::to_string(d.latent_rank) + " + " + std::to_string(d.latent_rope_dim);
}

}  // namespace

ModelDescription describe(const ModelFiles& files) {
  const json::Value& config = files.config();
  ModelDescription out;
  out.path = files.path().string();
  out.container = files.container() == Container::gguf ? "gguf" : "hub folder";
  out.model_type = config.string_or("model_type", "");
  if (const json::Value* names = config.find("architectures");
      names && names->as_array() && !names->as_array()->empty()) {
    if (const std::string* name = names->as_array()->front().as_string()) out.architecture = *name;
  }
  out.n_layers = first_of(config, {"num_hidden_layers"});
  out.hidden_size = first_of(config, {"hidden_size"});
  out.n_heads = first_of(config, {"num_attention_heads"});
  out.n_kv_heads = first_of(config, {"num_key_value_heads", "num_attention_heads"});
  out.head_dim = first_of(config, {"head_dim"});
  if (out.head_dim == 0 && out.n_heads > 0) out.head_dim = out.hidden_size / out.n_heads;
  out.vocab_size = first_of(config, {"vocab_size"});
  out.context_length = first_of(config, {"max_position_embeddings"});
  out.n_experts = first_of(config, {"num_experts", "num_local_experts", "n_routed_experts"});
  out.n_experts_per_token = first_of(config, {"num_experts_per_tok", "top_k_experts"});
  out.sliding_window = first_of(config, {"sliding_window"});
  out.latent_rank = first_of(config, {"kv_lora_rank"});
  if (out.latent_rank > 0) {
    out.latent_rope_dim = first_of(config, {"qk_rope_head_dim"});
    out.index_top_k = first_of(config, {"index_topk"});
    out.head_dim = first_of(config, {"qk_nope_head_dim"}) + out.latent_rope_dim;
    out.n_kv_heads = 1;
  }
  out.is_embedding_tied = config.bool_or("tie_word_embeddings", false);
  out.has_random_weights = files.has_random_weights();
  out.tensors = files.tensors();
  add_totals(out);
  return out;
}

std::string description_text(const ModelDescription& d, bool with_tensors) {
  std::string out;
  const auto line = [&](std::string name, const std::string& value) {
    out += padded(std::move(name), 16) + value + "\n";
  };
  const auto number = [&](std::string name, std::uint64_t value) {
    if (value > 0) line(std::move(name), std::to_string(value));
  };
  line("model", d.path + " (" + d.container + ")");
  line("architecture", d.architecture + " (" + d.model_type + ")");
  line("parameters", count_text(d.n_parameters) + " in " + std::to_string(d.tensors.size()) +
                         " tensors, " + bytes_text(d.size_bytes));
  if (d.has_random_weights) line("weights", "random: made by kvasir synth, nothing was learned");
  line("quantization", d.quantization);
  number("layers", d.n_layers);
  number("hidden size", d.hidden_size);
  line("heads", heads_text(d));
  if (d.index_top_k > 0)
    line("sparse index", "each query attends " + std::to_string(d.index_top_k) + " positions");
  if (d.n_experts > 0)
    line("experts",
         std::to_string(d.n_experts) + ", " + std::to_string(d.n_experts_per_token) + " a token");
  number("sliding window", d.sliding_window);
  line("vocabulary",
       std::to_string(d.vocab_size) + (d.is_embedding_tied ? ", head tied to the embedding" : ""));
  number("context", d.context_length);
  for (const TypeTotal& total : d.types) {
    line("  " + total.type, padded(std::to_string(total.n_tensors) + " tensors", 14) +
                                padded(count_text(total.n_parameters), 10) +
                                bytes_text(total.size_bytes));
  }
  if (!with_tensors) return out;
  std::size_t width = 0;
  for (const TensorInfo& tensor : d.tensors) width = std::max(width, tensor.name.size());
  for (const TensorInfo& tensor : d.tensors) {
    out += padded(tensor.name, width + 2) + padded(tensor.type, 12) +
           padded(shape_text(tensor.shape), 22) + bytes_text(tensor.size_bytes) + "\n";
  }
  return out;
}

json::Value description_json(const ModelDescription& d, bool with_tensors) {
  json::Object out{{"path", d.path},
                   {"container", d.container},
                   {"architecture", d.architecture},
                   {"model_type", d.model_type},
                   {"parameters", d.n_parameters},
                   {"size_bytes", d.size_bytes},
                   {"quantization", d.quantization},
                   {"random_weights", d.has_random_weights},
                   {"layers", d.n_layers},
                   {"hidden_size", d.hidden_size},
                   {"heads", d.n_heads},
                   {"kv_heads", d.n_kv_heads},
                   {"head_dim", d.head_dim},
                   {"vocab_size", d.vocab_size},
                   {"context_length", d.context_length},
                   {"experts", d.n_experts},
                   {"experts_per_token", d.n_experts_per_token},
                   {"sliding_window", d.sliding_window},
                   {"latent_rank", d.latent_rank},
                   {"latent_rope_dim", d.latent_rope_dim},
                   {"index_top_k", d.index_top_k},
                   {"tied_embedding", d.is_embedding_tied}};
  json::Array types;
  for (const TypeTotal& total : d.types) {
    types.push_back(json::Object{{"type", total.type},
                                 {"tensors", total.n_tensors},
                                 {"parameters", total.n_parameters},
                                 {"size_bytes", total.size_bytes}});
  }
  out["types"] = std::move(types);
  if (!with_tensors) return out;
  json::Array tensors;
  for (const TensorInfo& tensor : d.tensors) {
    json::Array shape;
    for (const std::uint64_t dim : tensor.shape) shape.emplace_back(dim);
    tensors.push_back(json::Object{{"name", tensor.name},
                                   {"stored_name", tensor.stored_name},
                                   {"type", tensor.type},
                                   {"shape", std::move(shape)},
                                   {"size_bytes", tensor.size_bytes}});
  }
  out["tensors"] = std::move(tensors);
  return out;
}

}  // namespace kvasir::formats
