// Reference checkpoints in tests: loaded as they are, or changed and written again.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "backend/ref/ref_device.h"
#include "base/file.h"
#include "model/detail/contiguous_kv.h"
#include "model/model.h"
#include "model/testing/model_folder.h"

namespace kvasir::model {

inline std::filesystem::path golden_folder(std::string_view name) {
  return std::filesystem::path(KVASIR_GOLDEN_MODELS) / name;
}

#define SKIP_WITHOUT(name) \
  if (!std::filesystem::exists(golden_folder(name))) GTEST_SKIP() << "no " << golden_folder(name)

struct Loaded {
  std::unique_ptr<ops::Device> device;
  std::unique_ptr<Model> model;
};

inline Loaded load(const std::filesystem::path& folder,
                   backend::ref::RefMode mode = backend::ref::RefMode::oracle) {
  Loaded out{.device = backend::ref::make_ref_device(mode), .model = nullptr};
  const auto files = formats::ModelFiles::open(folder);
  EXPECT_TRUE(files) << files.error().what;
  auto model = Model::load(*files, *out.device, {.max_context = 256, .max_step_tokens = 64});
  EXPECT_TRUE(model) << model.error().what;
  out.model = *std::move(model);
  return out;
}

inline std::string load_error(const std::filesystem::path& folder) {
  const auto files = formats::ModelFiles::open(folder);
  if (!files) return files.error().what;
  const auto device = backend::ref::make_ref_device(backend::ref::RefMode::oracle);
  const auto model = Model::load(*files, *device, {.max_context = 64, .max_step_tokens = 8});
  return model ? "no error" : model.error().what;
}

// A reference checkpoint that a test changes and writes again.
struct Checkpoint {
  explicit Checkpoint(std::string_view name)
      : config(*read_file(golden_folder(name) / "config.json", 1 << 20)),
        tensors(tensors_of(golden_folder(name) / "model.safetensors")) {}

  TestTensor& named(std::string_view name) {
    return *std::find_if(tensors.begin(), tensors.end(),
                         [&](const TestTensor& t) { return t.name == name; });
  }
  void drop(std::string_view name) {
    std::erase_if(tensors, [&](const TestTensor& t) { return t.name == name; });
  }
  std::string load_error() const {
    const ModelFolder folder(config, tensors);
    return model::load_error(folder.path());
  }

  std::string config;
  std::vector<TestTensor> tensors;
};

inline std::vector<TokenId> some_tokens(std::uint32_t n, std::uint32_t seed) {
  std::vector<TokenId> out(n);
  for (std::uint32_t i = 0; i < n; ++i) out[i] = (i * 37 + seed * 101 + i * i) % 288;
  return out;
}

// One row, fed in these chunks: logits of every token.
inline std::vector<float> logits_of(const Loaded& loaded,
                                    const std::vector<std::uint32_t>& chunks) {
  const auto n = std::accumulate(chunks.begin(), chunks.end(), 0u);
  const std::vector<TokenId> tokens = some_tokens(n, 5);
  auto kv = *ContiguousKv::make(*loaded.device, loaded.model->kv_list(),
                                {.n_rows = 1, .max_tokens = 128, .block_tokens = 8});
  std::vector<float> out;
  std::uint32_t at = 0;
  for (const std::uint32_t chunk : chunks) {
    std::vector<std::uint32_t> positions(chunk), wanted(chunk);
    std::iota(positions.begin(), positions.end(), at);
    std::iota(wanted.begin(), wanted.end(), 0u);
    const auto logits = loaded.model->forward(
        {std::span(tokens).subspan(at, chunk), positions, kv.begin({&chunk, 1}), wanted});
    EXPECT_TRUE(logits) << logits.error().what;
    kv.commit();
    out.insert(out.end(), logits->data, logits->data + chunk * logits->vocab);
    at += chunk;
  }
  return out;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace kvasir::model
