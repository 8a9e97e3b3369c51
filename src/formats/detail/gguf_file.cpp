#include <cstdio>
#include <unordered_set>

#include "formats/detail/gguf_arch.h"
#include "formats/detail/gguf_config.h"
#include "formats/detail/opened_model.h"
#include "formats/gguf.h"

namespace kvasir::formats {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kMaxSplits = 1000;
constexpr std::uint64_t kMaxShownElements =
    1024;  // longer arrays (vocabularies) stay in the file, see gguf_vocab.h

Error at_file(const fs::path& path, const Error& error) {
  return {error.code, path.string() + ": " + error.what};
}

Result<GgufContent> open_one(const fs::path& path, OpenedModel& model) {
  KVASIR_TRY(MappedFile map, MappedFile::open(path));
  auto content = parse_gguf(map.bytes());
  if (!content) return at_file(path, content.error());
  model.maps.push_back(std::move(map));
  return content;
}

// "name-00001-of-00003.gguf" → that of part `index` (from 1); empty when the path is not named so.
fs::path split_path(const fs::path& first, std::uint64_t index, std::uint64_t n) {
  char ending[64], wanted[64];
  std::snprintf(wanted, sizeof wanted, "-00001-of-%05u.gguf", static_cast<unsigned>(n));
  std::snprintf(ending, sizeof ending, "-%05u-of-%05u.gguf", static_cast<unsigned>(index),
                static_cast<unsigned>(n));
  std::string name = first.filename().string();
  if (!name.ends_with(wanted)) return {};
  name.replace(name.size() - std::string_view(wanted).size(), std::string::npos, ending);
  return first.parent_path() / name;
}

Status open_splits(const fs::path& path, OpenedModel& model, GgufContent& content) {
  const std::uint64_t n = content.whole_or("split.count", 1);
  if (n <= 1) return {};
  if (n > kMaxSplits)
    return invalid(path.string() + ": metadata 'split.count' is " + std::to_string(n));
  for (std::uint64_t index = 2; index <= n; ++index) {
    const fs::path part = split_path(path, index, n);
    if (part.empty())
      return invalid(path.string() +
                     ": part of a split model; open the one named …-00001-of-0000N.gguf");
    KVASIR_TRY(GgufContent more, open_one(part, model));
    for (GgufTensor& tensor : more.tensors) content.tensors.push_back(std::move(tensor));
  }
  return {};
}

StoredTensor entry_of(const GgufTensor& tensor, std::string name) {
  StoredTensor out;
  out.info.name = std::move(name);
  out.info.stored_name = tensor.name;
  out.info.shape = tensor.shape;
  out.info.size_bytes = tensor.bytes.size();
  if (const auto type = codec::find_gguf_type(tensor.type)) {
    set_planes(out, *type, tensor.bytes.data());
  } else {
    out.info.type = tensor.type_name;
    out.refusal =
        "has type " + out.info.type + ", not supported yet; supported: " + supported_types();
  }
  return out;
}

json::Value metadata_json(const GgufContent& content) {
  json::Object out;
  for (const auto& [key, value] : content.metadata) {
    if (!value.is_array() || value.n <= kMaxShownElements) out.push_back(key, value.to_json());
  }
  return out;
}

}  // namespace

Result<OpenedModel> open_gguf_file(const fs::path& path) {
  if (path.extension() == ".safetensors")
    return invalid(path.string() + ": open the folder that holds this file and config.json");
  OpenedModel model;
  model.container = Container::gguf;
  model.path = path;
  KVASIR_TRY(GgufContent content, open_one(path, model));
  KVASIR_TRY_DO(open_splits(path, model, content));
  const GgufArch arch = gguf_arch_of(content);
  auto config = gguf_config(content, arch, content.tensors);
  if (!config) return at_file(path, config.error());
  model.config = *std::move(config);
  model.metadata = metadata_json(content);
  std::unordered_set<std::string> names;
  for (const GgufTensor& tensor : content.tensors) {
    std::string name = canonical_gguf_name(arch, tensor.name, gguf_layer_count(content));
    if (!names.insert(name).second)
      return invalid(path.string() + ": tensor name '" + name + "' is duplicated");
    model.tensors.push_back(entry_of(tensor, std::move(name)));
  }
  model.gguf = std::make_unique<GgufContent>(std::move(content));
  return model;
}

}  // namespace kvasir::formats
