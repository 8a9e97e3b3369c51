// What opening a model gives, before ModelFiles puts its lookups around it; one opener per
// container.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "codec/weight_matrix.h"
#include "formats/detail/mapped_file.h"
#include "formats/gguf.h"
#include "formats/model_files.h"
#include "formats/safetensors.h"

namespace kvasir::formats {

struct StoredTensor {
  TensorInfo info;
  std::optional<codec::WeightType> type;  // none: cannot be read as a weight, `refusal` says why
  codec::RowPlanes planes;                // of row 0; a stack's rows follow one another
  std::size_t codes_stride = 0;           // bytes per row
  std::size_t scales_stride = 0;
  std::string refusal;
};

struct OpenedModel {
  Container container = Container::hub_folder;
  std::filesystem::path path;
  json::Value config;
  json::Value generation_config = json::Object{};
  json::Value metadata;
  std::vector<StoredTensor> tensors;
  std::vector<SafetensorsFile> safetensors;  // keep the bytes mapped
  std::vector<MappedFile> maps;
  std::unique_ptr<GgufContent> gguf;
};

Result<OpenedModel> open_hub_folder(const std::filesystem::path& path);
Result<OpenedModel> open_gguf_file(const std::filesystem::path& path);

// A row-major tensor of `type` over `bytes`, whose last axis is whole blocks. Shared by both
// openers.
void set_planes(StoredTensor& tensor, codec::WeightType type, const std::byte* bytes);
// "f32, bf16, q4_0, …": what the list of codecs can read, for messages.
std::string supported_types();

}  // namespace kvasir::formats
