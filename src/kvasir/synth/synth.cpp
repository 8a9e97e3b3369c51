#include "kvasir/synth.h"

#include <fstream>

#include "base/file.h"
#include "json/json.h"
#include "kvasir/synth/gguf_head.h"
#include "kvasir/synth/pieces.h"
#include "kvasir/synth/shapes.h"
#include "kvasir/synth/vocabulary.h"
#include "model/families.h"
#include "model/model.h"

namespace kvasir::synth {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxConfigBytes = 16u << 20;

struct NamedConfig {
  std::string name;  // "qwen3-0.6b", the file's folder
  json::Value config;
};

Result<NamedConfig> find_config(const std::string& given) {
  for (const Shape& shape : shapes()) {
    if (shape.name != given) continue;
    KVASIR_TRY(json::Value config, json::parse(shape.config));
    return NamedConfig{given, std::move(config)};
  }
  std::error_code ec;
  const fs::path path =
      fs::is_directory(given, ec) ? fs::path(given) / "config.json" : fs::path(given);
  if (!fs::exists(path, ec))
    return not_found("no shape and no file '" + given + "'; shapes: " + shape_names());
  KVASIR_TRY(const std::string text, read_file(path, kMaxConfigBytes));
  auto config = json::parse(text);
  if (!config) return invalid(path.string() + ": " + config.error().what);
  if (!config->is_object()) return invalid(path.string() + ": not a JSON object");
  return NamedConfig{fs::absolute(path).parent_path().filename().string(), *std::move(config)};
}

struct Form {
  bool is_gguf = false;
  StoredTypes types;
  bool is_affine = false;
  int bits = 0, group = 0;  // affine
};

codec::WeightType type_named(std::string_view name) { return *codec::find_weight_type(name); }

Result<Form> form_of(const Options& options) {
  Form form;
  form.is_gguf = options.out.extension() == ".gguf";
  const std::string& quant = options.quant;
  const codec::WeightType f32 = type_named("f32"), bf16 = type_named("bf16");
  if (quant == "bf16" || quant == "f16" || quant == "f32") {
    const codec::WeightType type = type_named(quant);
    form.types = {type, type, form.is_gguf ? f32 : type};
    return form;
  }
  form.types = {bf16, bf16, form.is_gguf ? f32 : bf16};
  if (quant == "4" || quant == "8") {
    if (form.is_gguf)
      return unsupported("--quant " + quant + " is MLX's; of a .gguf: q4_0, q4_1, q8_0");
    const auto type =
        codec::find_weight_type("affine" + quant + "g" + std::to_string(options.group_size));
    const bool is_known =
        options.group_size == 32 || options.group_size == 64 || options.group_size == 128;
    if (!type || !is_known)
      return invalid("groups of " + std::to_string(options.group_size) +
                     "; supported: 32, 64, 128");
    form.types.matrix = *type;
    form.is_affine = true;
    form.bits = quant == "4" ? 4 : 8;
    form.group = options.group_size;
    return form;
  }
  if (quant == "q4_0" || quant == "q4_1" || quant == "q8_0") {
    if (!form.is_gguf)
      return unsupported("--quant " + quant + " needs an output that ends in .gguf");
    form.types.matrix = type_named(quant);
    return form;
  }
  return invalid("--quant '" + quant + "'; supported: bf16, f16, f32, 4, 8, q4_0, q4_1, q8_0");
}

// Experts that families store fused and dense have these names in MLX's quantized files.
std::vector<std::string> names_of_quantized_experts(const Form& form) {
  if (!form.is_affine) return {};
  return {"model.layers.0.mlp.experts.gate_proj.weight",
          "model.layers.0.experts.switch_glu.gate_proj.weight"};
}

// The configuration as the new folder has it.
json::Value stored_config(json::Value config, const Form& form, std::uint64_t seed) {
  json::Object& out = *config.as_object();
  for (const char* const member : {"quantization", "quantization_config"}) {
    out.erase(member);
    json::Value* text = out.find("text_config");
    if (text && text->as_object()) text->as_object()->erase(member);
  }
  const std::string_view dense = codec::info(form.types.dense).name;
  out["torch_dtype"] = dense == "f32" ? "float32" : dense == "f16" ? "float16" : "bfloat16";
  out[formats::kRandomWeights] = true;
  out["kvasir_random_seed"] = seed;
  if (form.is_affine)
    out["quantization"] = json::Object{{"group_size", form.group}, {"bits", form.bits}};
  return config;
}

Status write_text(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) return io_error(path.string() + ": cannot be written");
  return {};
}

// One checkpoint, from its configuration to its place.
class Writer {
 public:
  Writer(const Options& options, NamedConfig named, Form form)
      : options_(options),
        named_(std::move(named)),
        form_(form),
        files_(formats::ModelFiles::blank(
            options.config, named_.config, names_of_quantized_experts(form))) {}

  Result<Summary> run() {
    KVASIR_TRY(decoder_, model::describe_model(files_, /*max_context=*/0));
    KVASIR_TRY(auto wanted, model::wanted_tensors(files_));
    pieces_ = make_pieces(std::move(wanted), form_.types);
    vocabulary_ = make_vocabulary(files_.config(), decoder_.vocab);
    fs::path partial = options_.out;
    partial += ".partial";
    std::error_code ec;
    fs::remove_all(partial, ec);
    const Status written = form_.is_gguf ? write_gguf(partial) : write_folder(partial);
    if (written) fs::rename(partial, options_.out, ec);
    if (written && !ec) return summary_;
    std::error_code ignored;
    fs::remove_all(partial, ignored);
    return written ? io_error(options_.out.string() + ": " + ec.message()) : written.error();
  }

 private:
  Status write_folder(const fs::path& folder) {
    std::error_code ec;
    if (!fs::create_directories(folder, ec)) return io_error(folder.string() + ": " + ec.message());
    const json::Value config = stored_config(named_.config, form_, options_.seed);
    KVASIR_TRY_DO(
        write_text(folder / "config.json", json::write(config, json::Style::pretty) + "\n"));
    if (vocabulary_) {
      KVASIR_TRY_DO(write_text(folder / "tokenizer.json", tokenizer_json(*vocabulary_)));
      KVASIR_TRY_DO(
          write_text(folder / "tokenizer_config.json", tokenizer_config_json(*vocabulary_)));
    }
    const auto tensors = safetensors_of(pieces_);
    KVASIR_TRY(auto file,
               formats::TensorFile::create_safetensors(folder / "model.safetensors", tensors));
    return write_data(file, tensors);
  }

  Status write_gguf(const fs::path& path) {
    KVASIR_TRY(const std::string architecture, gguf_architecture_of(files_.config()));
    KVASIR_TRY(auto tensors, gguf_tensors_of(architecture, pieces_));
    const std::vector<float> divisors = rope_divisors(files_.config(), decoder_);
    if (!divisors.empty())
      tensors.push_back({.name = "rope_freqs.weight",
                         .shape = {divisors.size()},
                         .size_bytes = divisors.size() * sizeof(float)});
    const auto metadata = gguf_metadata(architecture, named_.name, form_.types.matrix,
                                        files_.config(), decoder_, vocabulary_);
    KVASIR_TRY(auto file, formats::TensorFile::create_gguf(path, metadata, tensors));
    if (!divisors.empty())
      KVASIR_TRY_DO(file.write(tensors.size() - 1, 0, std::as_bytes(std::span(divisors))));
    return write_data(file, tensors);
  }

  Status write_data(formats::TensorFile& file, const std::vector<formats::NewTensor>& tensors) {
    KVASIR_TRY_DO(
        write_pieces(file, pieces_, options_.seed, options_.n_threads, options_.progress));
    for (const formats::NewTensor& tensor : tensors) summary_.size_bytes += tensor.size_bytes;
    for (const Piece& piece : pieces_) summary_.n_parameters += piece.n_elements();
    summary_.n_tensors = pieces_.size();
    summary_.type = codec::info(form_.types.matrix).name;
    summary_.has_tokenizer = vocabulary_.has_value();
    return file.close();
  }

  const Options& options_;
  NamedConfig named_;
  Form form_;
  formats::ModelFiles files_;
  model::DecoderConfig decoder_;
  std::vector<Piece> pieces_;
  std::optional<Vocabulary> vocabulary_;
  Summary summary_;
};

}  // namespace

Result<Summary> write(const Options& options) {
  std::error_code ec;
  if (options.out.empty() || fs::exists(options.out, ec))
    return invalid("'" + options.out.string() + "' exists: name a new folder or file");
  KVASIR_TRY(const Form form, form_of(options));
  KVASIR_TRY(NamedConfig named, find_config(options.config));
  return Writer(options, std::move(named), form).run();
}

}  // namespace kvasir::synth
