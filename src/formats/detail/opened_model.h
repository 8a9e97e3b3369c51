// What opening a model gives, before ModelFiles puts its lookups around it; one opener per
// container.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
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
  std::size_t codes_stride = 0;           // bytes per row; 0: columns
  std::size_t scales_stride = 0;
  std::uint32_t rows_per_scale = 1;
  std::unique_ptr<codec::ColumnLayout> columns;  // what planes.columns points at
  std::span<const std::byte> order;              // GPTQ's g_idx; hub_folds.h
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
// Rows [first_row, first_row + n_out) of n_in elements; the tensor has a type and so many.
codec::WeightMatrix view_of(const StoredTensor& tensor,
                            std::size_t first_row,
                            std::uint32_t n_out,
                            std::uint32_t n_in) noexcept;
// "f32, bf16, q4_0, …": what the list of codecs can read, for messages.
std::string supported_types();

}  // namespace kvasir::formats
