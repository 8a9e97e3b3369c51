// GET /api/tags, POST /api/show, GET /api/version: what Ollama's clients ask about models.
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>

#include "hub/library.h"
#include "hub/model_entry.h"
#include "server/detail/version.h"
#include "server/endpoints/endpoint.h"
#include "server/endpoints/ollama_format.h"

namespace kvasir::server {
namespace {

// What is known of the open model's files; read from their headers when no library has them.
hub::ModelEntry served_entry(const ServerState& state) {
  const std::filesystem::path path = hub::model_path(state.engine.load()->summary().path);
  if (state.library) {
    for (const hub::ModelEntry& entry : *state.library->models()) {
      if (entry.path == path) return entry;
    }
  }
  auto entry = hub::describe_model(path);
  return entry ? *std::move(entry) : hub::ModelEntry{};
}

// 134.5M, 7.2B
std::string short_count(std::uint64_t n) {
  const bool is_billions = n >= 1'000'000'000;
  const double tenths = std::round(static_cast<double>(n) / (is_billions ? 1e8 : 1e5));
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), tenths / 10,
                                 std::chars_format::fixed, 1);
  return std::string(text.data(), end.ptr) + (is_billions ? "B" : "M");
}

// Names the model's files without reading gigabytes: of their place, size and time. Clients show
// its first digits.
std::string digest_of(const ModelSummary& model, std::int64_t modified_s) {
  const std::string text =
      model.path + '\n' + std::to_string(model.weight_bytes) + '\n' + std::to_string(modified_s);
  std::array<unsigned char, EVP_MAX_MD_SIZE> hash{};
  unsigned n_hash = 0;
  EVP_Digest(text.data(), text.size(), hash.data(), &n_hash, EVP_sha256(), nullptr);
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (unsigned i = 0; i < n_hash; ++i) {
    out += kDigits[hash[i] >> 4];
    out += kDigits[hash[i] & 15];
  }
  return out;
}

json::Object details_of(const ModelSummary& model, const hub::ModelEntry& entry) {
  return {{"parent_model", ""},
          {"format", entry.container == "gguf" ? "gguf" : "safetensors"},
          {"family", model.architecture},
          {"families", json::Array{model.architecture}},
          {"parameter_size", entry.n_parameters > 0 ? short_count(entry.n_parameters) : ""},
          {"quantization_level", entry.quantization}};
}

json::Array capabilities_of(const ModelSummary& model) {
  if (model.embedding_width > 0) return {"embedding"};
  json::Array out{"completion"};
  if (model.output.tools != text::ToolFormat::none) out.push_back("tools");
  if (model.output.reasoning != text::ReasoningFormat::none) out.push_back("thinking");
  return out;
}

json::Object model_info_of(const ModelSummary& model, const hub::ModelEntry& entry) {
  return {{"general.architecture", model.architecture},
          {"general.basename", model.name},
          {"general.parameter_count", entry.n_parameters},
          {model.architecture + ".context_length", model.context_length},
          {model.architecture + ".vocab_size", model.vocab}};
}

// "name value" a line.
std::string parameters_of(const SamplingOptions& sampling) {
  const json::Object shown{{"temperature", static_cast<double>(sampling.temperature)},
                           {"top_k", sampling.top_k},
                           {"top_p", static_cast<double>(sampling.top_p)},
                           {"min_p", static_cast<double>(sampling.min_p)}};
  std::string out;
  for (const auto& [name, value] : shown) {
    std::array<char, 32> text{};
    const auto end = std::to_chars(text.data(), text.data() + text.size(),
                                   static_cast<float>(value.as_number().value_or(0)));
    out += (out.empty() ? "" : "\n") + name + " " + std::string(text.data(), end.ptr);
  }
  return out;
}

}  // namespace

HttpReply ollama_tags(ServerState& state, const HttpRequest&, std::string_view) {
  const ModelSummary& model = state.engine.load()->summary();
  const hub::ModelEntry entry = served_entry(state);
  std::vector<std::string> names{state.served_id()};
  names.insert(names.end(), state.options.aliases.begin(), state.options.aliases.end());
  json::Array models;
  for (const std::string& name : names) {
    models.push_back(json::Object{{"name", name},
                                  {"model", name},
                                  {"modified_at", rfc3339(entry.modified_s)},
                                  {"size", model.weight_bytes},
                                  {"digest", digest_of(model, entry.modified_s)},
                                  {"details", details_of(model, entry)}});
  }
  return json_reply(json::Object{{"models", std::move(models)}});
}

HttpReply ollama_show(ServerState& state, const HttpRequest& request, std::string_view) {
  const auto refuse = [](const ApiError& error) { return error_reply(error, ErrorShape::ollama); };
  auto body = parse_body(request);
  if (auto* error = std::get_if<ApiError>(&body)) return refuse(*error);
  json::Object named = *std::get<json::Value>(body).as_object();
  // The field's older name.
  if (const json::Value* name = named.find("name"); name && !named.find("model")) {
    json::Value copy = *name;
    named["model"] = std::move(copy);
  }
  auto known = echoed_model(state, named);
  if (auto* error = std::get_if<ApiError>(&known)) return refuse(*error);
  const Engine& engine = *state.engine.load();
  const ModelSummary& model = engine.summary();
  const hub::ModelEntry entry = served_entry(state);
  return json_reply(json::Object{{"license", ""},
                                 {"modelfile", "FROM " + model.name + "\n"},
                                 {"parameters", parameters_of(engine.default_sampling())},
                                 {"template", model.chat_template},
                                 {"details", details_of(model, entry)},
                                 {"model_info", model_info_of(model, entry)},
                                 {"capabilities", capabilities_of(model)},
                                 {"modified_at", rfc3339(entry.modified_s)}});
}

HttpReply ollama_version(ServerState&, const HttpRequest&, std::string_view) {
  return json_reply(json::Object{{"version", kVersion}});
}

}  // namespace kvasir::server
