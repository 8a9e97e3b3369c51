#include <array>
#include <cstdio>
#include <optional>
#include <string>
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

// "name-00002-of-00003.gguf": the part's place and where its siblings are.
struct Split {
  fs::path folder;
  std::string stem;  // "name"
  std::uint64_t index = 0, n = 0;

  static std::optional<Split> of(const fs::path& path) {
    constexpr std::string_view kEnding = "-00001-of-00001.gguf";
    const std::string name = path.filename().string();
    if (name.size() <= kEnding.size()) return std::nullopt;
    Split out{path.parent_path(), name.substr(0, name.size() - kEnding.size())};
    const std::string digits =
        name.substr(out.stem.size() + 1, 5) + name.substr(name.size() - 10, 5);
    if (digits.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
    out.index = std::stoul(digits.substr(0, 5));
    out.n = std::stoul(digits.substr(5));
    return out.part(out.index) == path ? std::optional(out) : std::nullopt;
  }
  fs::path part(std::uint64_t i) const {
    std::array<char, 32> ending{};
    std::snprintf(ending.data(), ending.size(), "-%05u-of-%05u.gguf", static_cast<unsigned>(i),
                  static_cast<unsigned>(n));
    return folder / (stem + ending.data());
  }
};

// Part `index` of `n`, which says so of itself.
Result<GgufContent> open_part(const Split& split, std::uint64_t index, OpenedModel& model) {
  const fs::path path = split.part(index);
  auto content = open_one(path, model);
  const std::string place =
      " (part " + std::to_string(index) + " of " + std::to_string(split.n) + ")";
  if (!content) return Error{content.error().code, content.error().what + place};
  if (content->whole_or("split.count", 0) == split.n &&
      content->whole_or("split.no", split.n) == index - 1) {
    return content;
  }
  return invalid(path.string() + ": its metadata 'split.no' and 'split.count' are not those of " +
                 "its name" + place);
}

// The content of the whole model; of a split one, whichever part `path` is. Metadata is the first
// part's.
Result<GgufContent> open_parts(const fs::path& path, OpenedModel& model) {
  KVASIR_TRY(GgufContent content, open_one(path, model));
  const std::uint64_t n = content.whole_or("split.count", 1);
  if (n <= 1) return content;
  if (n > kMaxSplits)
    return invalid(path.string() + ": metadata 'split.count' is " + std::to_string(n));
  const auto split = Split::of(path);
  if (!split || split->n != n || split->index < 1 || split->index > n) {
    return invalid(path.string() + ": part of a split model, but not named like one: " +
                   Split{{}, "NAME", 1, n}.part(1).string());
  }
  model.maps.clear();
  model.path = split->part(1);
  KVASIR_TRY(content, open_part(*split, 1, model));
  for (std::uint64_t index = 2; index <= n; ++index) {
    KVASIR_TRY(GgufContent more, open_part(*split, index, model));
    for (GgufTensor& tensor : more.tensors) content.tensors.push_back(std::move(tensor));
  }
  const std::uint64_t n_tensors = content.whole_or("split.tensors.count", content.tensors.size());
  if (n_tensors == content.tensors.size()) return content;
  return invalid(model.path.string() + ": " + std::to_string(content.tensors.size()) +
                 " tensors in all parts, metadata 'split.tensors.count' says " +
                 std::to_string(n_tensors));
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
  KVASIR_TRY(GgufContent content, open_parts(path, model));
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
