#include "formats/detail/hub_entries.h"

#include <algorithm>
#include <unordered_map>

#include "formats/detail/hub_folds.h"
#include "formats/detail/hub_names.h"

namespace kvasir::formats {
namespace {

StoredTensor plain_tensor(const SafeTensor& tensor) {
  StoredTensor out;
  out.info.stored_name = tensor.name;
  out.info.shape = tensor.shape;
  out.info.size_bytes = tensor.bytes.size();
  std::string type = tensor.dtype;
  std::transform(type.begin(), type.end(), type.begin(),
                 [](char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c); });
  const auto codec_type = codec::find_weight_type(type);
  out.info.type = type;
  if (codec_type && !codec::info(*codec_type).quantized) {
    set_planes(out, *codec_type, tensor.bytes.data());
  } else {
    out.refusal =
        "has type " + type + ", not supported yet as a weight; supported: " + supported_types();
  }
  return out;
}

// "a.b.scales" without ".scales" → "a.b"; empty when it does not end so.
std::string_view without(std::string_view name, std::string_view suffix) {
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : std::string_view();
}

class Folder {
 public:
  Folder(const TensorList& tensors, const HubQuantization& quantization)
      : tensors_(tensors), quantization_(quantization) {
    is_trunk_ = std::any_of(tensors.begin(), tensors.end(), [](const SafeTensor* tensor) {
      return tensor->name == "embed_tokens.weight";
    });
  }

  Result<std::vector<StoredTensor>> entries() {
    for (const SafeTensor* tensor : tensors_) {
      const std::string name = name_of(*tensor);
      if (!by_name_.emplace(name, tensor).second)
        return invalid("tensor name '" + name + "' is duplicated");
    }
    std::vector<StoredTensor> out;
    for (const SafeTensor* tensor : tensors_) {
      std::string name = name_of(*tensor);
      if (is_plane(name)) continue;
      KVASIR_TRY(StoredTensor entry, entry_of(name, *tensor));
      entry.info.name = std::move(name);
      out.push_back(std::move(entry));
    }
    return out;
  }

 private:
  static constexpr std::string_view kRoot = "model.";

  // A trunk saved without its model around it lacks the root of all names but the head's.
  std::string name_of(const SafeTensor& tensor) const {
    std::string name = canonical_name(tensor.name);
    return is_trunk_ && !name.starts_with("lm_head.") ? std::string(kRoot) + name : name;
  }
  const SafeTensor* find(std::string_view module, std::string_view suffix) const {
    if (module.empty()) return nullptr;
    const auto it = by_name_.find(std::string(module).append(suffix));
    return it == by_name_.end() ? nullptr : it->second;
  }
  std::optional<MlxMode> mlx_mode_of(std::string_view module) const {
    const bool has_scales = find(module, ".scales") != nullptr;
    if (is_trunk_ && module.starts_with(kRoot)) module.remove_prefix(kRoot.size());
    return quantization_.mlx.mode_of(module, has_scales);
  }
  bool has_columns() const noexcept {
    return quantization_.method == HubMethod::gptq || quantization_.method == HubMethod::awq;
  }
  // The scales of an F8 weight ("….weight"), of gpt-oss's experts ("…_blocks").
  const SafeTensor* f8_scales(std::string_view weight) const {
    const SafeTensor* tensor = find(weight, "");
    return tensor && tensor->dtype == "F8_E4M3" ? find(weight, "_scale_inv") : nullptr;
  }
  const SafeTensor* block_scales(std::string_view stem) const {
    const SafeTensor *blocks = find(stem, "_blocks"), *scales = find(stem, "_scales");
    return blocks && scales && blocks->dtype == "U8" && scales->dtype == "U8" ? scales : nullptr;
  }

  bool is_plane(std::string_view name) const {
    for (const std::string_view suffix : {".scales", ".biases", ".global_scale"}) {
      const std::string_view module = without(name, suffix);
      if (!module.empty() && find(module, ".weight") && mlx_mode_of(module)) return true;
    }
    if (f8_scales(without(name, "_scale_inv"))) return true;
    if (block_scales(without(name, "_scales"))) return true;
    if (!has_columns()) return false;
    for (const std::string_view suffix : {".qzeros", ".scales", ".g_idx"}) {
      if (find(without(name, suffix), ".qweight")) return true;
    }
    return false;
  }

  // May give the tensor another name: a module's weight is named as such however it is stored.
  Result<StoredTensor> entry_of(std::string& name, const SafeTensor& tensor) const {
    if (const SafeTensor* scales = f8_scales(name)) return fold_f8(tensor, *scales);
    if (const SafeTensor* scales = block_scales(without(name, "_blocks")))
      return fold_blocks(tensor, *scales);
    if (const std::string module(without(name, ".qweight")); has_columns() && !module.empty()) {
      name = module + ".weight";
      if (find(name, "")) return invalid("module '" + module + "' has a weight and a qweight");
      return fold_columns(quantization_, {&tensor, find(module, ".qzeros"), find(module, ".scales"),
                                          find(module, ".g_idx")});
    }
    const std::string_view module = without(name, ".weight");
    const auto mode = module.empty() ? std::nullopt : mlx_mode_of(module);
    if (!mode) return plain_tensor(tensor);
    return fold_planes(*mode, {&tensor, find(module, ".scales"), find(module, ".biases"),
                               find(module, ".global_scale")});
  }

  const TensorList& tensors_;
  const HubQuantization& quantization_;
  bool is_trunk_ = false;
  std::unordered_map<std::string, const SafeTensor*> by_name_;
};

}  // namespace

Result<std::vector<StoredTensor>> fold_entries(const TensorList& tensors,
                                               const HubQuantization& quantization) {
  return Folder(tensors, quantization).entries();
}

}  // namespace kvasir::formats
