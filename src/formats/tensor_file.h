// TensorFile: a new safetensors or GGUF file whose shapes are known and whose data comes piece by
// piece, in any order, so that a checkpoint of any size is written in little memory. Written by
// `kvasir synth`; formats as safetensors.h and gguf.h say. Movable; one thread at a time, write()
// any. What is never written reads as zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/gguf.h"

namespace kvasir::formats {

struct NewTensor {
  std::string name = {};                  // as in the file
  std::string dtype = {};                 // safetensors only: "F32", "BF16", "U32" …
  std::uint32_t ggml_type = 0;            // GGUF only
  std::vector<std::uint64_t> shape = {};  // outermost first
  std::uint64_t size_bytes = 0;
};

// Key and value pairs of a new GGUF file, in the order of adding.
class GgufMetadata {
 public:
  GgufMetadata& text(std::string_view key, std::string_view value);
  GgufMetadata& flag(std::string_view key, bool value);
  GgufMetadata& whole(std::string_view key, std::uint32_t value);
  GgufMetadata& real(std::string_view key, float value);
  GgufMetadata& texts(std::string_view key, std::span<const std::string> values);
  GgufMetadata& wholes(std::string_view key, std::span<const std::int32_t> values);

  std::uint64_t size() const noexcept { return n_; }
  const std::string& bytes() const noexcept { return bytes_; }

 private:
  GgufMetadata& add(std::string_view key, GgufKind kind, std::string_view value);
  std::string bytes_;
  std::uint64_t n_ = 0;
};

// "model.layers.3.self_attn.q_proj.weight" → "blk.3.attn_q.weight", in llama.cpp's architecture of
// that name; nothing for what it has no name for.
std::optional<std::string> gguf_tensor_name(std::string_view architecture,
                                            std::string_view canonical);

class TensorFile {
 public:
  // A file that exists is replaced. Errors begin with the path.
  static Result<TensorFile> create_safetensors(const std::filesystem::path& path,
                                               std::span<const NewTensor> tensors);
  static Result<TensorFile> create_gguf(const std::filesystem::path& path,
                                        const GgufMetadata& metadata,
                                        std::span<const NewTensor> tensors);
  TensorFile(TensorFile&& other) noexcept;
  TensorFile& operator=(TensorFile&& other) noexcept;
  ~TensorFile();

  // Bytes of tensor i from its offset on; within its size.
  Status write(std::size_t i, std::uint64_t offset, std::span<const std::byte> bytes);
  Status close();  // the disk may be full only here

 private:
  struct Place {
    std::uint64_t begin = 0, size_bytes = 0;
  };
  TensorFile() = default;
  static Result<TensorFile> create(const std::filesystem::path& path,
                                   const std::string& header,
                                   std::vector<Place> places);
  Error error() const;

  std::filesystem::path path_;
  int fd_ = -1;
  std::vector<Place> places_;  // of each tensor, from the file's start
};

}  // namespace kvasir::formats
