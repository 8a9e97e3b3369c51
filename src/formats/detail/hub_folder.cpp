#include <algorithm>
#include <unordered_map>

#include "base/file.h"
#include "formats/detail/hub_entries.h"
#include "formats/detail/hub_names.h"
#include "formats/detail/hub_quantization.h"
#include "formats/detail/opened_model.h"

namespace kvasir::formats {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kMaxConfigBytes = 16ull << 20;
constexpr std::uint64_t kMaxIndexBytes = 256ull << 20;

Result<json::Value> read_json(const fs::path& path, std::uint64_t max_bytes) {
  KVASIR_TRY(const std::string text, read_file(path, max_bytes));
  auto value = json::parse(text, {max_bytes, 64});
  if (!value) return Error{value.error().code, path.string() + ": " + value.error().what};
  if (!value->is_object()) return invalid(path.string() + ": not a JSON object");
  return value;
}

// The tensors that the index names, each from the shard it names.
Result<TensorList> open_shards(const fs::path& folder,
                               const fs::path& index_path,
                               OpenedModel& model) {
  KVASIR_TRY(const json::Value index, read_json(index_path, kMaxIndexBytes));
  const json::Value* map = index.find("weight_map");
  if (!map || !map->is_object()) return invalid(index_path.string() + ": no weight_map");
  std::unordered_map<std::string, std::size_t> shard_of;  // file name → place in model.safetensors
  for (const auto& [name, file] : *map->as_object()) {
    const std::string* shard = file.as_string();
    if (!shard || shard->empty() || fs::path(*shard).filename() != *shard) {
      return invalid(index_path.string() + ": weight_map of '" + name + "' is not a file name");
    }
    if (!shard_of.emplace(*shard, shard_of.size()).second) continue;
    KVASIR_TRY(SafetensorsFile opened, SafetensorsFile::open(folder / *shard));
    model.safetensors.push_back(std::move(opened));
  }
  std::unordered_map<std::string_view, std::size_t> file_of;
  for (const auto& [name, file] : *map->as_object()) {
    const std::size_t shard = shard_of.at(*file.as_string());
    if (!file_of.emplace(name, shard).second)
      return invalid(index_path.string() + ": tensor name '" + name + "' is duplicated");
    if (!model.safetensors[shard].find(name)) {
      return invalid((folder / *file.as_string()).string() + ": no tensor '" + name +
                     "', which the index places here");
    }
  }
  TensorList out;
  for (std::size_t shard = 0; shard < model.safetensors.size(); ++shard) {
    for (const SafeTensor& tensor : model.safetensors[shard].tensors()) {
      const auto it = file_of.find(tensor.name);
      if (it != file_of.end() && it->second == shard) out.push_back(&tensor);
    }
  }
  return out;
}

// model.safetensors, else the shards of the index, else every model*.safetensors or
// weights*.safetensors.
Result<TensorList> open_tensors(const fs::path& folder, OpenedModel& model) {
  std::error_code ec;
  const fs::path single = folder / "model.safetensors",
                 index = folder / "model.safetensors.index.json";
  std::vector<fs::path> files;
  if (fs::exists(single, ec)) {
    files.push_back(single);
  } else if (fs::exists(index, ec)) {
    return open_shards(folder, index, model);
  } else {
    for (const auto& entry : fs::directory_iterator(folder, ec)) {
      const std::string name = entry.path().filename().string();
      const bool is_weights = name.starts_with("model") || name.starts_with("weights");
      if (is_weights && name.ends_with(".safetensors")) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
  }
  if (files.empty())
    return not_found(folder.string() +
                     ": no model.safetensors and no model.safetensors.index.json");
  for (const fs::path& file : files) {
    KVASIR_TRY(SafetensorsFile opened, SafetensorsFile::open(file));
    model.safetensors.push_back(std::move(opened));
  }
  TensorList out;
  for (const SafetensorsFile& file : model.safetensors) {
    for (const SafeTensor& tensor : file.tensors()) out.push_back(&tensor);
  }
  return out;
}

}  // namespace

Result<OpenedModel> open_hub_folder(const fs::path& path) {
  OpenedModel model;
  model.container = Container::hub_folder;
  model.path = path;
  std::error_code ec;
  if (!fs::exists(path / "config.json", ec))
    return not_found(path.string() + ": no config.json in this folder");
  KVASIR_TRY(json::Value config, read_json(path / "config.json", kMaxConfigBytes));
  model.config = text_model_config(std::move(config));
  if (fs::exists(path / "generation_config.json", ec)) {
    KVASIR_TRY(model.generation_config,
               read_json(path / "generation_config.json", kMaxConfigBytes));
  }
  KVASIR_TRY(const TensorList tensors, open_tensors(path, model));
  const auto quantization = HubQuantization::read(model.config);
  if (!quantization)
    return Error{quantization.error().code, path.string() + ": " + quantization.error().what};
  auto entries = fold_entries(tensors, *quantization);
  if (!entries) return Error{entries.error().code, path.string() + ": " + entries.error().what};
  model.tensors = *std::move(entries);
  return model;
}

}  // namespace kvasir::formats
