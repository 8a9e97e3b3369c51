// A GGUF file that a test writes from the tensors of a checkpoint, gone with the object. Layout:
// the format's description in ggml, version 3.
#pragma once

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "model/testing/model_folder.h"

namespace kvasir::model {

class GgufFile {
 public:
  explicit GgufFile(const std::string& arch) : prefix_(arch + ".") {
    entry("general.architecture", kString, text(arch));
  }
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;
  ~GgufFile() {
    std::error_code ec;
    std::filesystem::remove(path_, ec);
  }

  // Members below the architecture's name.
  GgufFile& count(std::string_view key, std::uint32_t n) {
    return entry(prefix_ + std::string(key), kU32, number(n));
  }
  GgufFile& real(std::string_view key, float x) {
    return entry(prefix_ + std::string(key), kF32, number(x));
  }
  GgufFile& counts(std::string_view key, const std::vector<std::uint32_t>& all) {
    std::string bytes = number(kU32) + number(std::uint64_t{all.size()});
    for (const std::uint32_t n : all) bytes += number(n);
    return entry(prefix_ + std::string(key), kArray, bytes);
  }
  GgufFile& tensor(std::string_view name, const TestTensor& t) {
    data_.resize((data_.size() + 31) / 32 * 32, '\0');
    tensors_ += text(name) + number(static_cast<std::uint32_t>(t.shape.size()));
    for (auto d = t.shape.rbegin(); d != t.shape.rend(); ++d) tensors_ += number(*d);
    tensors_ += number(t.dtype == "F32" ? 0u : 30u) + number(std::uint64_t{data_.size()});
    data_ += t.bytes;
    ++n_tensors_;
    return *this;
  }
  const std::filesystem::path& write() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "kvasir_model_XXXXXX.gguf").string();
    ::close(::mkstemps(pattern.data(), 5));
    path_ = pattern;
    std::string head =
        "GGUF" + number(3u) + number(n_tensors_) + number(n_entries_) + entries_ + tensors_;
    head.resize((head.size() + 31) / 32 * 32, '\0');
    std::ofstream(path_, std::ios::binary) << head << data_;
    return path_;
  }

 private:
  static constexpr std::uint32_t kU32 = 4, kF32 = 6, kString = 8, kArray = 9;

  template <class T>
  static std::string number(T x) {
    return {reinterpret_cast<const char*>(&x), sizeof x};
  }
  static std::string text(std::string_view s) {
    return number(std::uint64_t{s.size()}) + std::string(s);
  }
  GgufFile& entry(std::string_view key, std::uint32_t kind, const std::string& bytes) {
    entries_ += text(key) + number(kind) + bytes;
    ++n_entries_;
    return *this;
  }

  std::string prefix_, entries_, tensors_, data_;
  std::uint64_t n_entries_ = 0, n_tensors_ = 0;
  std::filesystem::path path_;
};

}  // namespace kvasir::model
