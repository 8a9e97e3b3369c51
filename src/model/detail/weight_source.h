// WeightSource: a model's files as packed matrices and vectors, one tensor at a time, its pages
// given back right after (MOD-54). In rehearsal everything is looked up and nothing packed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/progress.h"
#include "base/result.h"
#include "formats/model_files.h"
#include "model/decoder_config.h"
#include "model/detail/decoder_weights.h"
#include "ops/device.h"

namespace kvasir::model {

struct RowRun {  // rows [begin, begin + count) of a stored matrix
  std::uint32_t begin = 0;
  std::uint32_t count = 0;
};

class WeightSource {
 public:
  // device: null where all is a rehearsal.
  WeightSource(const formats::ModelFiles& files,
               const DecoderConfig& config,
               ops::Device* device,
               bool exact_f32,
               const ProgressSink& progress);

  void rehearse(bool on) noexcept { is_rehearsal_ = on; }
  const formats::ModelFiles& files() const noexcept { return files_; }
  const DecoderConfig& config() const noexcept { return config_; }
  bool exact_f32() const noexcept { return exact_f32_; }

  // `name` is whole, with its suffix. Null in rehearsal. may_split: as ops::PackOptions.
  Result<std::unique_ptr<ops::PackedMatrix>> matrix(const std::string& name,
                                                    std::uint32_t n_out,
                                                    std::uint32_t n_in,
                                                    bool exact_f32,
                                                    bool may_split = false);
  // "{name}.weight" and, if it has one, "{name}.bias".
  Result<Linear> linear(const std::string& name,
                        std::uint32_t n_out,
                        std::uint32_t n_in,
                        bool has_bias);
  Status append(SideBySide& parts,
                const std::string& name,
                std::uint32_t n_out,
                std::uint32_t n_in,
                bool has_bias);
  // The same with its rows, all of which are in `runs`, in the order of these.
  Status append_runs(SideBySide& parts,
                     const std::string& name,
                     std::uint32_t n_in,
                     bool has_bias,
                     std::span<const RowRun> runs);
  // A tensor's numbers, to be worked on and then settled; or settled as they are.
  Result<std::vector<float>> numbers(const std::string& name, std::size_t n) {
    return files_.vector(name, n);
  }
  Result<Vector> vector(const std::string& name, std::size_t n);
  Result<Vector> settle(std::span<const float> values);
  // "{name}.weight", a "+1" added where the family's are centred on zero; with a mean that a norm
  // may have, where the family asks for it (MOD-43).
  Result<Vector> rms_weight(const std::string& name, std::uint32_t n);
  // A norm of the residual stream, of the family's kind; none when the name is empty.
  Result<Norm> norm(const std::string& prefix, std::string_view name);

  // A view of stored rows, which need not be a whole tensor; null in rehearsal.
  Result<std::unique_ptr<ops::PackedMatrix>> pack(const codec::WeightMatrix& rows);
  // Nothing more is wanted of a tensor's rows: their pages go, progress is told.
  void done_with(const codec::WeightMatrix& stored);
  bool is_rehearsal() const noexcept { return is_rehearsal_; }

 private:
  Result<std::unique_ptr<ops::PackedMatrix>> pack(const codec::WeightMatrix& rows,
                                                  ops::PackOptions options);

  const formats::ModelFiles& files_;
  const DecoderConfig& config_;
  ops::Device* device_;
  bool exact_f32_;
  const ProgressSink& progress_;
  bool has_plus_one_ = false;
  bool is_rehearsal_ = false;
  std::uint64_t done_bytes_ = 0, total_bytes_ = 0;
};

// latent_weights.cpp
Result<LatentWeights> load_latent(WeightSource& source,
                                  const LatentAttentionSpec& latent,
                                  const std::string& prefix);
std::uint64_t size_bytes(const LatentWeights& weights);

// recurrent_weights.cpp
Result<DeltaWeights> load_delta(WeightSource& source,
                                const DeltaSpec& delta,
                                const std::string& prefix);
Result<ShortConvWeights> load_short_conv(WeightSource& source,
                                         const ShortConvSpec& conv,
                                         const std::string& prefix);

// encoder_weights.cpp; every tensor that the encoder names, and no other but a pooler's.
Result<DecoderWeights> load_encoder(WeightSource& source);
Status rehearse_encoder(WeightSource& source);  // everything is looked up, nothing packed

// feed_forward_weights.cpp
Result<MlpWeights> load_mlp(WeightSource& source, const MlpSpec& mlp, const std::string& prefix);
Result<MoeWeights> load_moe(WeightSource& source, const MoeSpec& moe, const std::string& prefix);

}  // namespace kvasir::model
