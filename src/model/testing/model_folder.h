// A model folder that a test writes: config.json and tensors, gone with the object.
#pragma once

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "formats/safetensors.h"
#include "json/json.h"

namespace kvasir::model {

struct TestTensor {
  std::string name, dtype;
  std::vector<std::uint64_t> shape;
  std::string bytes;
};

class ModelFolder {
 public:
  explicit ModelFolder(std::string_view config,
                       const std::vector<TestTensor>& tensors = {
                           {"unused", "F32", {1}, std::string(4, '\0')}}) {
    // In memory where there is such a folder: some tests write thousands of files.
    const std::filesystem::path memory = "/dev/shm";
    const bool has_memory = ::access(memory.c_str(), W_OK) == 0;
    std::string pattern =
        ((has_memory ? memory : std::filesystem::temp_directory_path()) / "kvasir_model_XXXXXX")
            .string();
    path_ = ::mkdtemp(pattern.data());
    write("config.json", config);
    json::Object header;
    std::string data;
    for (const TestTensor& tensor : tensors) {
      json::Array shape;
      for (const std::uint64_t n : tensor.shape) shape.emplace_back(n);
      const std::uint64_t begin = data.size();
      data += tensor.bytes;
      header.push_back(tensor.name, json::Object{{"dtype", tensor.dtype},
                                                 {"shape", std::move(shape)},
                                                 {"data_offsets",
                                                  json::Array{begin, std::uint64_t{data.size()}}}});
    }
    const std::string text = json::write(json::Value(std::move(header)));
    std::string size(8, '\0');
    const std::uint64_t n = text.size();
    std::memcpy(size.data(), &n, 8);
    write("model.safetensors", size + text + data);
  }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;
  ~ModelFolder() {
    std::error_code ec;
    std::filesystem::remove_all(path_, ec);
  }
  const std::filesystem::path& path() const { return path_; }
  void set_config(std::string_view config) const { write("config.json", config); }

 private:
  void write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  std::filesystem::path path_;
};

// The tensors of a model on disk, to be written again with something changed.
inline std::vector<TestTensor> tensors_of(const std::filesystem::path& file) {
  std::vector<TestTensor> out;
  const auto opened = formats::SafetensorsFile::open(file);
  if (!opened) return out;
  for (const formats::SafeTensor& t : opened->tensors()) {
    out.push_back({t.name, t.dtype, t.shape,
                   std::string(reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size())});
  }
  return out;
}

}  // namespace kvasir::model
