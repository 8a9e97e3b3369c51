// ModelFiles: an opened model on disk: its configuration and its weights by canonical (Hugging
// Face) name, memory-mapped and validated before use. One view over hub folders (safetensors,
// MLX-quantized, fp8, mxfp4, GPTQ, AWQ) and GGUF, so that a model family is written once. Opening
// takes a time independent of size. Immutable after open, except for the book-keeping of use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/weight_matrix.h"
#include "json/json.h"

namespace kvasir::formats {

struct GgufContent;

enum class Container : std::uint8_t { hub_folder, gguf };

struct TensorInfo {
  std::string name;                  // canonical name
  std::string stored_name;           // as in the file
  std::string type;                  // "bf16", "q4_1", "affine4g64" …
  std::vector<std::uint64_t> shape;  // outermost first
  std::uint64_t size_bytes = 0;      // all planes
};

// A tensor that somebody asked a blank model for.
struct WantedTensor {
  std::string name;                  // canonical
  std::vector<std::uint64_t> shape;  // outermost first
  bool is_matrix = false;            // rows that may be quantized; else a dense vector
};

// The member of config() that says a model's weights are random: `kvasir synth` made it.
inline constexpr std::string_view kRandomWeights = "kvasir_random_weights";
inline constexpr std::string_view kGgufRandomWeights = "kvasir.random_weights";  // GGUF's key

// Weights of n_experts experts, one matrix each; stored apart or stacked, the view is the same.
using ExpertMatrices = std::vector<codec::WeightMatrix>;

class ModelFiles {
 public:
  // path: a hub folder (config.json + *.safetensors) or one .gguf file, of a split one any part
  // (path() is then the first). Errors name the file and
  // what was wrong (MOD-5, 50-52).
  static Result<ModelFiles> open(const std::filesystem::path& path);
  // A model of that configuration without weights: has() and find() know no tensor but `present`,
  // while any one that is asked for is there: vectors read as ones, matrices have null planes and
  // only their shape may be looked at. wanted() then lists them, which is what a new checkpoint of
  // this configuration must hold.
  static ModelFiles blank(const std::filesystem::path& path,
                          json::Value config,
                          const std::vector<std::string>& present = {});
  const std::vector<WantedTensor>& wanted() const noexcept;  // in the order of asking; once each
  ModelFiles(ModelFiles&&) noexcept;
  ModelFiles& operator=(ModelFiles&&) noexcept;
  ~ModelFiles();

  Container container() const noexcept;
  const std::filesystem::path& path() const noexcept;

  // Hugging Face style config.json of the *text* model (text_config lifted, MOD-4). For GGUF it is
  // made from the metadata in the same terms ("model_type", "hidden_size", "num_key_value_heads",
  // "rope_parameters", …); two members are ours: "kvasir_rope_interleaved" (bool: q/k rows are
  // stored permuted, use interleaved pairs) and "kvasir_norms_have_one" (gemma norms already
  // include +1).
  const json::Value& config() const noexcept;
  const json::Value& generation_config() const noexcept;  // {} when absent
  bool has_random_weights() const noexcept { return config().bool_or(kRandomWeights, false); }
  // GGUF metadata by key as JSON; null for hub folders. Arrays of more than 1024 elements are left
  // out, so that opening stays fast: vocabularies are read by gguf_vocab.h.
  const json::Value& metadata() const noexcept;
  const GgufContent* gguf() const noexcept;  // the file as gguf.h reads it; null for hub folders

  // Tensors by canonical name without wrapper prefix ("model.layers.0.self_attn.q_proj.weight",
  // "lm_head.weight").
  const std::vector<TensorInfo>& tensors()
      const noexcept;  // in file order, planes of one module folded into one entry
  bool has(std::string_view name) const noexcept;
  const TensorInfo* find(
      std::string_view name) const noexcept;  // null when absent; does not mark it as used

  // [n_out, n_in] (of one row also [n_in]); for MLX modules name is "<module>.weight" and the
  // planes are found beside it. Missing, misshapen → an error naming the tensor. Each call marks
  // the tensor as used.
  Result<codec::WeightMatrix> matrix(std::string_view name,
                                     std::uint32_t n_out,
                                     std::uint32_t n_in) const;
  // A dense tensor of n elements (any shape) as f32: norms, biases, rope factors.
  Result<std::vector<float>> vector(std::string_view name, std::size_t n) const;
  // The same of a tensor that has one of these shapes, all of as many elements; the first is the
  // one to write.
  Result<std::vector<float>> vector(std::string_view name,
                                    const std::vector<std::vector<std::uint64_t>>& shapes) const;
  // Experts, stacked or apart: `name` is a stacked [n_experts, n_out, n_in] tensor, or a pattern
  // with one '*' for the expert ("model.layers.0.mlp.experts.*.gate_proj.weight",
  // "….block_sparse_moe.experts.*.w1.weight"). A pattern finds tensors stored apart, or else the
  // stack of MLX and GGUF files, whose canonical name has "switch_mlp" in place of "experts.*" and
  // gate_proj, down_proj, up_proj for w1, w2, w3.
  // gpt-oss's own files: NAME finds the stack of type mxfp4g32 that is called NAME_blocks there
  // (NAME_scales is folded in), say "model.layers.0.mlp.experts.gate_up_proj". Gate and up rows of
  // an expert alternate: m.every(2, 0) and m.every(2, 1).
  Result<ExpertMatrices> stack(std::string_view name,
                               std::uint32_t n_experts,
                               std::uint32_t n_out,
                               std::uint32_t n_in) const;

  // Names never asked for, without those skipped silently (rotary_emb.inv_freq, unused mtp.*,
  // vision towers) (MOD-5).
  std::vector<std::string> unused() const;
  // Gives the pages behind a matrix back to the system (after repacking, MOD-54).
  void release_pages(const codec::WeightMatrix& matrix) const noexcept;

 private:
  struct Impl;
  explicit ModelFiles(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvasir::formats
