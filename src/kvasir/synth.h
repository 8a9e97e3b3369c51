// synth: a checkpoint of a given shape with seeded random weights, to measure and test models
// whose real weights one does not have. What it writes says that its weights are random
// (formats::kRandomWeights), and everything that opens it repeats that. Memory is bounded whatever
// the size; the same options give the same bytes on any machine and with any number of threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/progress.h"
#include "base/result.h"

namespace kvasir::synth {

struct Options {
  std::string config;          // a named shape, a config.json, or a folder that has one
  std::string quant = "bf16";  // bf16, f16, f32; 4, 8; q4_0, q4_1, q8_0 (.gguf only)
  int group_size = 64;         // of 4 and 8 in a folder: 32, 64, 128
  std::uint64_t seed = 0;
  // A folder (safetensors, config.json, tokenizer), or a file that ends in .gguf. Must not exist.
  std::filesystem::path out;
  int n_threads = 1;
  ProgressSink progress = {};  // "writing weights", in elements
};

struct Summary {
  std::uint64_t n_tensors = 0, n_parameters = 0, size_bytes = 0;
  std::string type;            // of most weights: "affine4g64"
  bool has_tokenizer = false;  // a vocabulary too small for all bytes gets none
};

// Errors: a configuration that no family can read, a type or group that does not go with the
// container or the shape, a GGUF of a family that llama.cpp's plain ones do not hold, `out` exists.
Result<Summary> write(const Options& options);

std::string shape_names();  // "qwen3-0.6b, llama-3.2-1b, …"

}  // namespace kvasir::synth
