#include "model/detail/weight_source.h"

#include <algorithm>

namespace kvasir::model {

WeightSource::WeightSource(const formats::ModelFiles& files,
                           const DecoderConfig& config,
                           ops::Device& device,
                           bool exact_f32,
                           const ProgressSink& progress)
    : files_(files), config_(config), device_(device), exact_f32_(exact_f32), progress_(progress) {
  for (const formats::TensorInfo& tensor : files.tensors()) total_bytes_ += tensor.size_bytes;
  has_plus_one_ = config.norm_plus_one && !files.config().bool_or("kvasir_norms_have_one", false);
}

Result<std::unique_ptr<ops::PackedMatrix>> WeightSource::matrix(const std::string& name,
                                                                std::uint32_t n_out,
                                                                std::uint32_t n_in,
                                                                bool exact_f32) {
  KVASIR_TRY(const codec::WeightMatrix stored, files_.matrix(name, n_out, n_in));
  KVASIR_TRY(auto packed, pack(stored, exact_f32));
  done_with(stored);
  return packed;
}

Result<Linear> WeightSource::linear(const std::string& name,
                                    std::uint32_t n_out,
                                    std::uint32_t n_in,
                                    bool has_bias) {
  Linear out;
  KVASIR_TRY(out.weight, matrix(name + ".weight", n_out, n_in, exact_f32_));
  if (has_bias) {
    KVASIR_TRY(out.bias, files_.vector(name + ".bias", n_out));
  }
  return out;
}

Status WeightSource::append(SideBySide& parts,
                            const std::string& name,
                            std::uint32_t n_out,
                            std::uint32_t n_in,
                            bool has_bias) {
  KVASIR_TRY(Linear part, linear(name, n_out, n_in, has_bias));
  parts.push_back(std::move(part));
  return {};
}

Result<Vector> WeightSource::rms_weight(const std::string& name, std::uint32_t n) {
  KVASIR_TRY(Vector out, files_.vector(name + ".weight", n));
  if (has_plus_one_) {
    for (float& w : out) w += 1.0f;
  }
  return out;
}

Result<Norm> WeightSource::norm(const std::string& prefix, std::string_view name) {
  Norm out;
  if (name.empty()) return out;
  const std::string whole = prefix + std::string(name);
  KVASIR_TRY(out.weight, rms_weight(whole, config_.hidden));
  if (config_.norm_bias) {
    KVASIR_TRY(out.bias, files_.vector(whole + ".bias", config_.hidden));
  }
  return out;
}

Result<std::unique_ptr<ops::PackedMatrix>> WeightSource::pack(const codec::WeightMatrix& rows) {
  return pack(rows, exact_f32_);
}

Result<std::unique_ptr<ops::PackedMatrix>> WeightSource::pack(const codec::WeightMatrix& rows,
                                                              bool exact_f32) {
  if (is_rehearsal_) return std::unique_ptr<ops::PackedMatrix>();
  return device_.pack(rows, {.exact_f32 = exact_f32});
}

void WeightSource::done_with(const codec::WeightMatrix& stored) {
  if (is_rehearsal_) return;
  files_.release_pages(stored);
  const std::size_t planes = (stored.planes.scales ? 1u : 0u) + (stored.planes.biases ? 1u : 0u);
  done_bytes_ += stored.n_out * (stored.codes_stride + planes * stored.scales_stride);
  if (!progress_) return;
  progress_({.stage = "repacking weights",
             .done = std::min(done_bytes_, total_bytes_),
             .total = total_bytes_});
}

}  // namespace kvasir::model
