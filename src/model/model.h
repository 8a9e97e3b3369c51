// Model: weights in a device's own layout and the graph that runs them, behind contract's Executor.
// Scratch memory is taken once at load; a forward allocates nothing. Loaded and called by one
// thread (the engine's).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "base/result.h"
#include "contract/executor.h"
#include "formats/model_files.h"
#include "model/decoder_config.h"
#include "ops/device.h"
#include "tensor/dtype.h"

namespace kvasir::model {

struct LoadOptions {
  std::uint32_t max_context = 0;  // positions to serve; 0: the model's own
  // Tokens of one forward; an encoder takes its longest input at least (SCH-12).
  std::uint32_t max_step_tokens = 2048;
  std::uint32_t max_wanted = 0;  // rows of logits of one forward; 0: max_step_tokens
  // Tokens that tentative rows of one forward may have together, whose inputs recurrent layers
  // keep for a replay.
  std::uint32_t max_tentative_tokens = 0;
  ProgressSink progress = {};  // "repacking weights", in stored bytes
  bool exact_f32 = false;  // f32 activations; always so when the stored weights are all f32 (MOD-6)
};

// What one row costs in a step that feeds n_tokens tokens of it.
struct StepCost {
  std::uint64_t linear_flops = 0;     // matrix products, the head for one token
  std::uint64_t attention_flops = 0;  // q·k and p·v over the visible keys; steps of recurrences
  std::uint64_t weight_bytes =
      0;  // packed weights read, each once; of experts as many as may be chosen
  std::uint64_t kv_bytes = 0;  // keys, values and recurrent states read and written
};

// Bytes of scratch a model takes at load, before it is loaded.
std::uint64_t scratch_bytes(const DecoderConfig& config,
                            std::uint32_t max_step_tokens,
                            std::uint32_t max_wanted,
                            std::uint32_t max_tentative_tokens = 0);

// The tensors that load() reads from a model of this configuration, in its order. `blank`: a
// ModelFiles::blank() that nobody has asked yet.
Result<std::vector<formats::WantedTensor>> wanted_tensors(const formats::ModelFiles& blank);

class Model final : public Executor {
 public:
  // Errors: unsupported model type, configuration out of bounds, a tensor missing, extra or
  // misshapen (the first one is named, MOD-5), a device that refuses memory. `files` is needed
  // during the call only.
  static Result<std::unique_ptr<Model>> load(const formats::ModelFiles& files,
                                             ops::Device& device,
                                             LoadOptions options);
  ~Model() override;

  const KvList& kv_list() const noexcept override;
  std::uint32_t vocab_size() const noexcept override;
  std::uint32_t max_positions() const noexcept override;
  std::uint32_t max_step_tokens() const noexcept override;
  OutputKind output() const noexcept override;
  std::uint32_t output_width() const noexcept override;
  bool takes_whole_rows() const noexcept override;
  std::uint32_t max_wanted() const noexcept override;
  // Refuses (and changes nothing) a batch beyond the limits above, a KV that is not of this model's
  // shape, or rows that an encoder cannot tell apart by their positions 0, 1, 2 …
  Status launch(const StepBatch& batch) override;
  Result<StepOutput> collect() override;
  bool runs_behind() const noexcept override;
  bool picks_tokens() const noexcept override;
  void replay(const StepBatch& batch, std::span<const std::uint32_t> keep) noexcept override;
  std::uint32_t max_tentative_tokens() const noexcept override;

  const DecoderConfig& config() const noexcept;
  std::string_view rope_choice() const noexcept;  // belongs into numerics_id when not empty (MOD-2)
  bool exact_f32() const noexcept;
  std::uint64_t weight_bytes() const noexcept;  // as packed, norms and biases included
  std::uint64_t scratch_bytes() const noexcept;
  std::uint64_t rope_bytes() const noexcept;
  // context: positions already in the row's KV.
  StepCost cost(std::uint32_t n_tokens,
                std::uint32_t context,
                DType kv_type = DType::bf16) const noexcept;

 private:
  struct Impl;
  struct Launched;
  explicit Model(std::unique_ptr<Impl> impl);
  std::size_t pick(std::span<const PickRow> rows, const Launched& step);
  void copy_scores(std::span<const PickRow> picks, LogitsView& logits);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvasir::model
